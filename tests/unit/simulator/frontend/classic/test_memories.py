"""The memories and the machine as kernels name them."""

from difftest.simulator import TRN1, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.memories import ParDim


def test_the_tile_sizes_are_the_machines():
    def kernel():
        assert nl.tile_size.total_available_sbuf_size == (192 - 16) * 1024
        assert nl.tile_size.pmax == 128

    launch(kernel, machine=TRN1)
    assert nl.tile_size.total_available_sbuf_size == (224 - 16) * 1024


def test_memories_show_their_names():
    assert [repr(b) for b in (nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm)] == [
        "nl.sbuf",
        "nl.psum",
        "nl.private_hbm",
        "nl.shared_hbm",
    ]


def test_par_dim_is_its_number():
    assert ParDim(128) == 128
    assert repr(ParDim(128)) == "par_dim(128)"

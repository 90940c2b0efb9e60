"""Direct allocation: places of blocks, their effect on the capacity, and forbidden mixtures.

Source: ``nki_direct_allocation_guide.rst`` and ``nki.compiler`` at tag v2.26.0.
"""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.analysis.placement import placements
from difftest.simulator import (
    TRN2,
    NkiError,
    RuleWarning,
    SignatureError,
    Space,
    launch,
)
from difftest.simulator.entry import kernel as nki
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import written as stored

DATA = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
modes = every("plain", [False, True])


def in_turn(x):
    """Four blocks in two physical tiles, as the guide double-buffers."""
    tiles = nl.ndarray(
        (4, nl.par_dim(8), 4),
        nl.float32,
        buffer=ncc.sbuf.mod_alloc(base_addr=1024, num_free_tiles=(2,)),
    )
    banks = nl.ndarray(
        (4, nl.par_dim(8), 4),
        nl.float32,
        buffer=ncc.psum.mod_alloc(base_bank=1, num_bank_tiles=(2,)),
    )
    out = nl.ndarray((4, 8, 4), nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tiles[i] = nl.load(x[:, nl.ds(4 * i, 4)])
        banks[i] = nl.copy(tiles[i])
        tiles[i] = nl.copy(banks[i])
        nl.store(out[i], tiles[i])
    return out


@modes
def test_placing_changes_no_value(plain):
    (result,) = launch(in_turn, [DATA], plain=plain).outputs
    assert_array_equal(result, DATA.reshape(8, 4, 4).transpose(1, 0, 2))


def test_the_trace_has_the_address_of_each_block():
    """The tables of the documentation: tile 0 + (i % 2) * 4 * sizeof, bank i % 2."""
    allocations = launch(in_turn, [DATA]).trace.allocations
    sbuf, psum = (one for one in allocations if one.places)
    assert sbuf.places == ((0, 1024), (0, 1040), (0, 1024), (0, 1040))
    assert psum.places == ((0, 2048), (0, 4096), (0, 2048), (0, 4096))
    assert [(area.low, area.high) for area in sbuf.areas] == [
        (1024, 1040),
        (1040, 1056),
    ]


def many(blocks, tiles):
    """A tensor with many blocks of 32 KiB a partition in so many physical tiles."""

    def kernel(x):
        tensor = nl.ndarray(
            (blocks, nl.par_dim(128), 8192),
            nl.float32,
            buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(tiles,)),
        )
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(blocks):
            tensor[i] = nl.load(x)
            nl.store(out, tensor[i])
        return out

    return kernel


def placement_of(kernel, *arrays):
    trace = launch(kernel, arrays).trace
    (found,) = (one for one in placements(trace, TRN2) if one.space is Space.SBUF)
    return found


def test_the_capacity_counts_physical_tiles():
    """8 blocks would be 256 KiB a partition; two tiles hold them."""
    data = np.zeros((128, 8192), np.float32)
    found = placement_of(many(8, 2), data)
    assert (found.needed, found.reached, found.fits) == (65536, 65536, True)
    with pytest.raises(NkiError, match="placed outside sbuf"):
        launch(many(8, 7), [data])


def test_placed_blocks_and_blocks_that_the_compiler_places():
    def kernel(x):
        tensor = nl.ndarray(
            (4, nl.par_dim(128), 8192),
            nl.float32,
            buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(4,)),
        )
        for i in nl.affine_range(4):
            tensor[i] = nl.load(x)
        others = [nl.load(x), nl.load(x), nl.load(x)]
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for tile in (*others, tensor[0]):
            nl.store(out, tile)
        return out

    with pytest.warns(RuleWarning, match="1 tensors were placed by the kernel, 3 by"):
        found = placement_of(kernel, np.zeros((128, 8192), np.float32))
    assert (found.needed, found.reached, found.fits) == (7 * 32768, 7 * 32768, False)


def mixed(x):
    tile = nl.ndarray((8, 16), nl.float32, buffer=ncc.sbuf.alloc(lambda *_: (0, 0)))
    tile[...] = nl.load(x)
    return stored(nl.exp(tile))


def test_a_kernel_that_leaves_a_tensor_to_the_compiler():
    with pytest.warns(
        RuleWarning, match="1 tensors were placed by the kernel, 1 by"
    ) as caught:
        result = launch(mixed, [DATA * 0])
    assert_array_equal(result.outputs[0], np.ones((8, 16)))
    (note,) = result.notes
    assert "nl.exp(tile)" in note.location.text
    assert caught[0].lineno == note.location.line
    with pytest.raises(
        NkiError, match="a kernel that places a tensor places all"
    ) as error:
        launch(mixed, [DATA], strictness="documented")
    assert "ncc.force_auto_alloc" in error.value.remedy


FORMS = {
    "over jit": lambda: ncc.force_auto_alloc(nki.jit(mixed_too)),
    "under jit": lambda: nki.jit(ncc.force_auto_alloc(mixed_too)),
    "with brackets": lambda: ncc.force_auto_alloc()(nki.jit(mixed_too)),
    "a plain function": lambda: ncc.force_auto_alloc(mixed_too),
    "with a grid": lambda: ncc.force_auto_alloc(nki.jit(mixed_too))[1],
}


def mixed_too(x):
    return mixed(x)


@every("form", FORMS)
def test_placements_that_the_compiler_must_ignore(form, monkeypatch):
    monkeypatch.setattr(mixed_too, "__dict__", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = launch(FORMS[form](), [DATA * 0])
    assert not any(one.areas for one in result.trace.allocations)


@every("thing", [3, int, "kernel"])
def test_automatic_placement_is_for_kernels_only(thing):
    with pytest.raises(NkiError, match=r"to be a kernel|else than a kernel"):
        ncc.force_auto_alloc(thing)


def test_a_tensor_without_blocks_is_one_tile_for_any_requested_number():
    def kernel(x):
        modulo = ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=(2,))
        tile = nl.ndarray((8, 16), nl.float32, buffer=modulo)
        tile[...] = nl.load(x)
        out = nl.ndarray((8, 16), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    x = np.ones((8, 16), np.float32)
    with pytest.warns(RuleWarning, match="allocation got 1 numbers of tiles"):
        result = launch(kernel, [x])
    np.testing.assert_array_equal(result.outputs[0], x)
    with pytest.raises(NkiError, match="allocation got 1 numbers of tiles"):
        launch(kernel, [x], strictness="documented")


def test_a_function_of_places_gets_awss_names():
    asked = []

    def by_name(*, fdim_size, pdim_size, idx):
        asked.append((idx, pdim_size, fdim_size))
        return 0, 0, 0

    def in_place(block, partitions, size):
        asked.append((block, partitions, size))
        return 0, 0

    def kernel():
        nl.ndarray((2, nl.par_dim(8), 16), nl.float32, buffer=ncc.psum.alloc(by_name))
        nl.ndarray((1, nl.par_dim(8), 16), nl.bfloat16, buffer=ncc.sbuf.alloc(in_place))

    launch(kernel)
    assert asked == [((0,), 8, 64), ((1,), 8, 64), ((0,), 8, 32)]


@every(
    "buffer, text",
    [
        (lambda: ncc.sbuf.mod_alloc(base_addr=208 * 1024), "placed outside sbuf"),
        (lambda: ncc.sbuf.alloc(lambda *_: (16, 0)), "placed outside sbuf"),
        (lambda: ncc.psum.alloc(lambda *_: (8, 0, 0)), "placed outside psum"),
        (lambda: ncc.psum.alloc(lambda *_: (0, 0)), "got 2 numbers"),
        (lambda: ncc.sbuf.alloc(3), "sbuf.alloc got a int"),
        (
            lambda: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2, 2)),
            "got 2 numbers of tiles",
        ),
    ],
)
def test_an_impossible_placement_is_rejected(buffer, text):
    def kernel():
        nl.ndarray((2, nl.par_dim(8), 16), nl.float32, buffer=buffer())

    with pytest.raises(NkiError, match=text):
        launch(kernel)


def test_inside_a_bank_of_psum_is_a_note():
    def kernel(x):
        bank = nl.ndarray(
            (8, 16), nl.float32, buffer=ncc.psum.alloc(lambda *_: (2, 32, 64))
        )
        tile = nl.ndarray((8, 16), nl.float32, buffer=ncc.sbuf.alloc(lambda *_: (0, 0)))
        tile[...] = nl.load(x)
        bank[...] = nl.copy(tile)
        tile[...] = nl.copy(bank)
        return stored(tile)

    with pytest.warns(RuleWarning, match="placed inside a bank of PSUM"):
        launch(kernel, [DATA])
    with pytest.raises(NkiError, match="placed inside a bank"):
        launch(kernel, [DATA], strictness="documented")


@every(
    "call",
    [
        lambda: ncc.sbuf.mod_alloc(),
        lambda: ncc.sbuf.mod_alloc(byte_addr=0),
        lambda: ncc.sbuf.mod_alloc(base_addr=0, base_bank=1),
        lambda: ncc.psum.mod_alloc(base_addr=0),
        lambda: ncc.psum.alloc(),
        lambda: ncc.sbuf.auto_alloc(1),
        lambda: ncc.multi_buffer(factors=2),
        lambda: ncc.no_reorder(1),
        lambda: ncc.allocation_scope(1),
        lambda: ncc.enable_stack_allocator(level=3),
        lambda: ncc.skip_middle_end_transformations(None, None),
        lambda: ncc.force_auto_alloc(None, None),
    ],
)
def test_arguments_that_do_not_fit(call):
    with pytest.raises(SignatureError, match="arguments that do not fit"):
        call()

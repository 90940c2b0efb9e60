from __future__ import annotations

from difftest.simulator.frontend.classic.memories import ParDim


def test_par_dim_is_its_number():
    assert ParDim(128) == 128
    assert repr(ParDim(128)) == "par_dim(128)"

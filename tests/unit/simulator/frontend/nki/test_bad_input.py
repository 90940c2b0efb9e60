"""Misuse of `nki.isa` and of tensors in today's dialect: one clear error each."""

import numpy as np

from difftest.simulator import (
    TRN1,
    KernelError,
)
from difftest.simulator.frontend.nki import isa as nisa
from tests.unit.simulator.frontend.nki.kernels import raised, tile


def test_the_scalar_engine_of_trn1_copies_nothing():
    def compute(x):
        nisa.tensor_copy(tile((2, 2)), x, engine=nisa.engine.scalar)
        return x

    text = raised(KernelError, compute, np.ones((2, 2), np.float32), machine=TRN1)
    assert "tensor_copy does not support engine.scalar on NeuronCore-v2 (Trn1/Inf2)." in text

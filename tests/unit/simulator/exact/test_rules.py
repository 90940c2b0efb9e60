"""Every instruction alone beside its exact run: the machine lies within the bound of its errors."""

from __future__ import annotations

import dataclasses
import importlib
import random

import numpy as np
import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.dtypes import FLOAT32, FLOATS, NKI_NAMES, is_float
from difftest.simulator.exact import run
from difftest.simulator.exact.bounded import ROUNDINGS, Bounded
from difftest.simulator.exact.functions import FUNCTIONS
from difftest.simulator.exact.held import raw_values
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.exact.shadow import RULES, Shadow
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.functions import ACTIVATIONS
from difftest.simulator.instructions.record import INSTRUCTIONS
from difftest.simulator.instructions.writing import fit
from tests.every import every
from tests.unit.simulator.instructions.calls.drawn import Operand
from tests.unit.simulator.instructions.calls.examples import drawn

EVERY_DTYPE = ExactSettings(dtypes=("float8_e5m2",))
ROUGH = 0.7310585786300049
"""Times this, no value fills fewer bits than float32 has."""
SEEDS = 12


def test_each_record_has_one_error_rule():
    assert set(RULES) == set(INSTRUCTIONS)


def test_a_record_without_one_cannot_be_imported(monkeypatch):
    monkeypatch.delitem(RULES, "tensor_tensor")
    with pytest.raises(TypeError, match="no error rule for tensor_tensor"):
        importlib.reload(run)


def test_each_activation_has_one():
    assert set(FUNCTIONS) | {"sign"} == set(ACTIVATIONS)


def rough(call):
    """The call on data of which every operation rounds."""

    def roughened(one):
        if not isinstance(one, Operand) or one.is_newer or not is_float(one.dtype):
            return one
        return dataclasses.replace(one, values=np.asarray(one.values) * ROUGH)

    return dataclasses.replace(
        call,
        operands={name: roughened(one) for name, one in call.operands.items()},
        destinations={name: roughened(one) for name, one in call.destinations.items()},
    )


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Whatever an instruction is said to write is compared with what the machine has written.

    So a rule that takes a wrong value for exact is seen too, which no output would show: where
    nothing rounds an exact run takes the machine's values.
    """
    put = Shadow.put

    def checked(self, tile, made, where):
        put(self, tile, made, where)
        if made is None or not is_float(tile.dtype) or tile.dtype != tile._storage.dtype:
            return
        machine = raw_values(tile).astype(np.float64)
        made = self.written(made, tile.dtype)
        value = made.value if made.value.shape == tile.shape else fit(made.value, tile)
        error = np.zeros(())
        if made.error is not None:
            error = np.broadcast_to(made.error, made.value.shape)
            error = error if error.shape == tile.shape else fit(error, tile)
            error = error * (1 + 2.0**-30)
        if isinstance(tile, IndirectTile):  # of a place that is named twice the last value holds
            plane = np.zeros(tile._storage.size)
            tile._scatter(plane, value, where)
            value = tile._gather(plane)
        off = np.abs(machine - value) > error
        off &= np.isfinite(machine)  # an overflow is no rounding
        if where is not None:
            off &= where.reshape(off.shape) if where.size == off.size else where
        missing = tile._unwritten()
        if missing is not None:
            off &= ~missing
        if off.any():
            raise OutsideError(f"{tile!r}: {machine[off][:3]}, exactly {value[off][:3]}")

    monkeypatch.setattr(Shadow, "put", checked)


class OutsideError(AssertionError):
    """The machine wrote something that its exact run excludes."""


@every("name", sorted(INSTRUCTIONS))
def test_the_machine_lies_within_the_bounds(name):
    """On drawn calls: bit for bit what it is without an exact run, and within the bounds."""
    ran = 0
    for seed in range(SEEDS):
        call = rough(drawn(name, random.Random(seed).choice))
        try:
            alone = call.run("record")
        except NkiError:  # the data left an operator's range
            continue
        result = call.launched("record", EVERY_DTYPE)
        for one, other in zip(alone, result.outputs, strict=True):
            assert one.tobytes() == other.tobytes(), call
        ran += 1
    assert ran


@every("value, error", [(1.0, None), (1.0, 0.0), (1.01, None)])
def test_a_rule_that_forgets_its_rounding_is_seen(monkeypatch, value, error):
    """The check above can fail."""

    def forgetful(run, call, data1, data2):
        made = (data1.value + data2.value) * value
        return Bounded(made, error if error is None else np.full(made.shape, error), FLOAT32)

    monkeypatch.setitem(RULES, "tensor_tensor", forgetful)

    def kernel(x):
        tile = nl.load(x)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(tile, nl.multiply(tile, ROUGH)))
        return out

    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    with pytest.raises(OutsideError):
        launch(kernel, [x], exact=True)


def test_all_floats_have_a_rounding():
    floats = {dtype for dtype in NKI_NAMES.values() if is_float(dtype)}
    assert set(ROUNDINGS) == floats > set(FLOATS)

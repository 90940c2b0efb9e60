"""Each instruction alone, with its exact run: the machine is within the bound of its errors."""

import itertools
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from difftest.simulator import MACHINES, TRN3, NkiError, launch
from difftest.simulator.dtypes import FLOAT32, FLOATS, NKI_NAMES, is_float
from difftest.simulator.entry.kernel import as_kernel
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.exact.bounded import FUNCTIONS, ROUNDINGS, Bounded, ExactValues
from difftest.simulator.exact.exact_values import raw_values
from difftest.simulator.exact.numbers import ARITHMETIC
from difftest.simulator.exact.run import ExactSettings, Shadow
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import ACTIVATIONS, NKI_OPS, AluOp
from difftest.simulator.instructions.gate import fit
from difftest.simulator.instructions.masked import issue_masked
from difftest.simulator.instructions.record import INSTRUCTIONS
from difftest.simulator.instructions.reduce import AVERAGE
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.unit.simulator.instructions.calls.examples import drawn
from tests.unit.simulator.instructions.calls.tensors import Operand, place, place_today

EVERY_DTYPE = ExactSettings(dtypes=("float8_e5m2",))
ROUGH = 0.7310585786300049
"""Times this, no value fills fewer bits than float32 has."""
SEEDS = 12 if NIGHTLY else 6


def test_each_activation_has_one():
    assert set(FUNCTIONS) | {"sign"} == set(ACTIVATIONS)


def rough(call):
    """Return the call on data that every operation rounds."""

    def roughened(one):
        if not isinstance(one, Operand) or one.is_newer or not is_float(one.dtype):
            return one
        return replace(one, values=np.asarray(one.values) * ROUGH)

    return replace(
        call,
        operands={name: roughened(one) for name, one in call.operands.items()},
        destinations={name: roughened(one) for name, one in call.destinations.items()},
    )


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Compare all declared outputs of an instruction with the machine's values.

    This detects a rule that takes a wrong value for exact. No output would show it: where nothing
    rounds, an exact run takes the machine's values.
    """
    put = Shadow.put

    def checked(self, tile, made, where):
        put(self, tile, made, where)
        if (
            made is None
            or not is_float(tile.dtype)
            or tile.dtype != tile._storage.dtype
        ):
            return
        machine = raw_values(tile).astype(np.float64)
        made = self.written(made, tile.dtype)
        value = made.value if made.value.shape == tile.shape else fit(made.value, tile)
        error = np.zeros(())
        if made.error is not None:
            error = np.broadcast_to(made.error, made.value.shape)
            error = error if error.shape == tile.shape else fit(error, tile)
            error = error * (1 + 2.0**-30)
        # of a place that is named twice the last value holds
        if isinstance(tile, IndirectTile):
            plane = np.zeros(tile._storage.size)
            tile._scatter(plane, value, where)
            value = tile._gather(plane)
        off = np.abs(machine - value) > error
        off &= np.isfinite(machine)  # an overflow is not a rounding
        if where is not None:
            off &= where.reshape(off.shape) if where.size == off.size else where
        missing = tile._unwritten()
        if missing is not None:
            off &= ~missing
        if off.any():
            raise OutsideError(
                f"{tile!r}: {machine[off][:3]}, exactly {value[off][:3]}"
            )

    monkeypatch.setattr(Shadow, "put", checked)


class OutsideError(AssertionError):
    """The machine wrote something that its exact run excludes."""


@every("name", sorted(INSTRUCTIONS))
def test_the_machine_is_within_the_bounds(name):
    """Drawn calls give the same bits with and without an exact run, and are within the bounds."""
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


NEAR = 2.0**-12
"""The largest distance of an exact value from the machine's, relative to the value or to 1."""


def apart(tile, generator):
    """Give a tile exact values other than the machine's, and the bounds that hold them."""
    machine = raw_values(tile).astype(np.float64)
    error = np.maximum(np.abs(machine), 1.0) * NEAR
    value = machine + error * generator.uniform(-1, 1, machine.shape)
    tile._storage.exact = ExactValues(value, error, None)


def variants(record, options, dialect):
    """The options with each operator and each function in place of each."""
    yield options
    averages = record.name == "tensor_partition_reduce" and dialect == "nki"
    average = (AVERAGE,) if averages else ()
    prelu = (PRELU,) if record.name == "activate2" else ()
    for at, option in enumerate(options):
        others = ()
        if isinstance(option, AluOp):
            others = (*NKI_OPS.values(), *average)
        elif isinstance(option, str) and option in ACTIVATIONS:
            others = (*ACTIVATIONS, *prelu)
        yield from ((*options[:at], other, *options[at + 1 :]) for other in others)


def teeth(shape):
    """Return a mask that is not a box: it leaves out none, one or two elements of a partition."""
    rest = (
        np.arange(np.prod(shape[1:], dtype=int))
        < np.prod(shape[1:]) - np.c_[: shape[0]] % 3
    )
    return rest.reshape(shape)


def ran_apart(call, dialect, machine, masked=False):
    """Launch all variants of a call in one kernel, on exact values apart; the names that ran."""
    roles = {**call.operands, **call.destinations}
    held = {name: one for name, one in roles.items() if isinstance(one, Operand)}
    roles |= {name: one() for name, one in roles.items() if callable(one)}
    dst, *others = (role.name for role in call.record.destinations)
    made, decorated = SPELLED[dialect]
    ran = set()
    issue = partial(issue_masked, mask=teeth) if masked else gate.issue

    def kernel(*arrays):
        generator = np.random.default_rng(0)
        for options in variants(call.record, call.options, dialect):
            tiles = dict(roles)
            for array, (name, one) in zip(arrays, held.items(), strict=True):
                tiles[name] = made(array, one)
                if one.written and is_float(one.dtype):
                    apart(tiles[name], generator)
            try:
                issue(
                    call.record,
                    tuple(tiles[role.name] for role in call.record.operands),
                    options,
                    dst=tiles[dst],
                    others=tuple(tiles[name] for name in others),
                    engine=call.engine,
                )
            # no operator of this instruction, or the data left its range
            except NkiError:
                continue
            ran.update(getattr(one, "name", one) for one in options)

    inside = [
        replace(one, values=np.abs(one.values) / 4 + 0.25)
        if is_float(one.dtype)
        else one
        for one in held.values()
    ]
    arrays = [one.array for one in inside]
    how = {"strictness": "documented", "exact": EVERY_DTYPE}
    launch(decorated(kernel), arrays, machine=machine, **how)
    return ran


def of_floats(name, seed):
    """Return a drawn call on floats, into floats: only floats are set apart and checked."""
    record = INSTRUCTIONS[name]
    roles = (*record.operands, *record.destinations)
    forced = {
        role.name: FLOAT32 for role in roles if FLOAT32 in (role.dtypes or (FLOAT32,))
    }
    return drawn(name, random.Random(seed).choice, forced)


SPELLED = {"classic": (place, as_kernel), "nki": (place_today, jit)}
OF_OPERATORS = (
    "activate2",
    "activation",
    "affine_select",
    "dma_compute",
    "exponential",
    "range_select",
    "scalar_tensor_tensor",
    "select_reduce",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
)


@every(
    "machine, dialect", zip(MACHINES.values(), itertools.cycle(SPELLED), strict=False)
)
def test_each_operator_is_within_the_bounds(machine, dialect):
    """The machine's values where the exact ones are others, of each operator and function."""
    ran = set()
    for name in OF_OPERATORS:
        for seed in range(2):
            call = drawn(name, random.Random(seed).choice)
            masked = machine is TRN3 and call.record.classic and seed == 1
            ran |= ran_apart(call, dialect, machine, masked)
    old = [op.name for op in NKI_OPS.values() if op.nc_version <= machine.nc_version]
    assert {
        name for name in old if not NKI_OPS[name].bitvec
    } | ACTIVATIONS.keys() <= ran


WITHOUT = (
    "bn_aggr",
    "bn_stats",
    "gather_flattened",
    "local_gather",
    "max8",
    "nc_n_gather",
)
WITHOUT += (
    "nc_stream_shuffle",
    "nc_transpose",
    "reciprocal",
    "tensor_copy_predicated",
    "topk",
)
WITHOUT += ("where",)


@every("name", WITHOUT)
def test_each_instruction_without_an_operator_is_within_the_bounds(name):
    """So do sorts, moments and gathers of such values."""
    for seed in range(2):
        call = of_floats(name, seed)
        ran_apart(call, "classic" if call.record.classic else "nki", call.machine)
    if call.record.classic and call.record.walk is None:
        ran_apart(call, "classic", call.machine, masked=True)


@every("value, error", [(1.0, None), (1.0, 0.0), (1.01, None)])
def test_a_rule_that_forgets_its_rounding_is_seen(monkeypatch, value, error):
    """The check above can fail."""

    def forgetful(data1, data2):
        made = (data1.value + data2.value) * value
        return Bounded(
            made, error if error is None else np.full(made.shape, error), FLOAT32
        )

    monkeypatch.setitem(ARITHMETIC, np.add, forgetful)

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

"""A replayed tape behaves as the kernel: bit for bit, event for event."""

import dataclasses
import json
import random

import numpy as np
import pytest

from difftest.simulator import TRN3, NkiError, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.errors import NotModelledError
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions.record import EFFECTS, INSTRUCTIONS
from difftest.simulator.launch_listeners import recording_tapes
from difftest.simulator.replay import ReplayError, replay_tape
from difftest.simulator.strictness import RuleWarning
from difftest.simulator.tape import TapedForm
from difftest.simulator.tape_json import TapeFormatError, tape_from_json, tape_to_json
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.unit.simulator.instructions.calls.drawn import Operand
from tests.unit.simulator.instructions.calls.examples import EXAMPLES, FORMS, drawn
from tests.unit.simulator.small_runs import RUNS, in_turn, kernels_of_the_tree

KERNELS = kernels_of_the_tree()
COLLECTIVES = {name for name, one in EFFECTS.items() if one.exchange is not None}
"""They need ranks, or programs that meet."""


def arrays_of(kernel, seed):
    generator = np.random.default_rng(seed)
    shapes, keywords = RUNS[kernel.__name__]
    return [
        generator.standard_normal(shape).astype(np.float32) for shape in shapes
    ], keywords


def taped(kernel, args, keywords=None, **how):
    """A launch, and its tape as another process gets it."""
    with recording_tapes() as tapes:
        result = launch(kernel, args, keywords, **how)
    text = tape_to_json(tapes[0])
    tape = tape_from_json(text)
    assert tape_to_json(tape) == text
    return result, tape


def events(result):
    """All that a trace says of each event."""
    told = [
        (*e.kind[:3], e.number, repr(e.arguments), e.stack, e.loops, e.program)
        for e in result.trace
    ]
    regions = [one for e in result.trace for one in (None, *e.writes, *e.reads)]
    return told, [one and (one.allocation.id, *one[1:8]) for one in regions]


def assert_equal(one, other):
    assert len(one.outputs) == len(other.outputs)
    for a, b in zip(one.outputs, other.outputs, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    assert events(one) == events(other)
    if one.exact is not None:
        for a, b in zip(one.exact.outputs, other.exact.outputs, strict=True):
            assert a.value.tobytes() == b.value.tobytes()


# -- the same --------------------------------------------------------------------------------------


@every("name", in_turn(KERNELS))
def test_a_kernel_of_the_tree(name):
    """On other data than the tape's; with the exact run as well."""
    args, keywords = arrays_of(KERNELS[name], 1)
    result, tape = taped(KERNELS[name], args, keywords)
    others, _ = arrays_of(KERNELS[name], 2)
    fresh = launch(KERNELS[name], others, keywords, exact=True)
    assert_equal(fresh, launch(replay_tape(tape), others, keywords, exact=True))
    assert fresh.outputs[0].tobytes() != result.outputs[0].tobytes()


def test_the_oracle_follows_a_replay():
    args, keywords = arrays_of(KERNELS["nki.softmax_rows"], 1)
    result, tape = taped(KERNELS["nki.softmax_rows"], args, keywords)
    np.testing.assert_array_max_ulp(
        result.outputs[0],
        launch(replay_tape(tape), args, keywords, plain=True).outputs[0],
        16,
    )


def opcodes(tape):
    forms = [one for step in tape.steps for one in step.args if type(one) is TapedForm]
    return {one.parts[0] for one in forms if one.kind == "Opcode"}


def replay_of(call, mode, seen):
    """A drawn call's launch and its replay leave the same."""
    with recording_tapes() as tapes:
        result = call.launched(mode)
    seen |= opcodes(tapes[0])
    tape = tape_from_json(tape_to_json(tapes[0]))
    tensors = {**call.beside, **call.operands, **call.destinations}
    arrays = [one.array for one in tensors.values() if isinstance(one, Operand)]
    assert_equal(result, launch(replay_tape(tape), arrays, machine=call.machine))


def test_each_record_replays_from_its_tape():
    """As its record is issued, and as the classic dialect spells it."""
    seen = set()
    for name in sorted(EXAMPLES):
        for seed in range(2 if NIGHTLY else 1):
            call = drawn(name, random.Random(seed).choice)
            replay_of(call, "record", seen)
            if call.is_classic:
                replay_of(call, "classic", seen)
    assert seen >= set(INSTRUCTIONS) - set(FORMS)


@jit
def effects_of_one_program(x, counts):
    """Registers, scalars, random numbers and their states, offsets in a tile and in a register."""
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    told = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
    held, where = (nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(held, counts)
    register = nisa.register_alloc()
    nisa.register_load(register, held)
    nisa.register_store(told[0:1, 0:1], register)
    nisa.scalar_store(told[0:1, 1:2], nisa.scalar_load(held))
    nisa.dma_copy(where, counts)
    rows = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(rows, x.ap([[8, 4], [1, 8]], scalar_offset=where, indirect_dim=0))
    again = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(again, x.ap([[8, 4], [1, 8]], scalar_offset=register, indirect_dim=0))
    noise, state = (
        nl.ndarray((4, 8), kind, buffer=nl.sbuf) for kind in (nl.float32, nl.uint32)
    )
    seed = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
    nisa.memset(seed, 7)
    nisa.set_rng_seed(seed)
    nisa.rng(state)
    nisa.rand2(noise, 0.0, 1.0)
    words = nl.ndarray((128, 24), nl.uint32, buffer=nl.sbuf)
    nisa.rand_get_state(words, engine=nisa.vector_engine)
    nisa.rand_set_state(words, engine=nisa.vector_engine)
    nisa.tensor_tensor(rows, rows, noise, nl.add)
    nisa.tensor_tensor(rows, rows, again, nl.add)
    nisa.dma_copy(out, rows)
    return out, told


def test_effects_replay_on_the_same_and_on_other_data():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    counts = np.array([[3]], np.int32)
    result, tape = taped(effects_of_one_program, [x, counts], machine=TRN3)
    assert_equal(result, launch(replay_tape(tape), [x, counts]))
    fresh = launch(effects_of_one_program, [2 * x, counts], machine=TRN3)
    assert_equal(fresh, launch(replay_tape(tape), [2 * x, counts], machine=TRN3))
    named = opcodes(tape)
    assert named >= EFFECTS.keys() - COLLECTIVES


def test_other_values_of_a_register_are_refused():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    counts = np.array([[3]], np.int32)
    _, tape = taped(effects_of_one_program, [x, counts], machine=TRN3)
    with pytest.raises(
        NotModelledError, match=r"another value than on the tape[^$]*received: 2"
    ):
        launch(replay_tape(tape), [x, counts - 1])


@jit
def two_programs(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    mine, theirs = (nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(mine, x[4 * me : 4 * me + 4, :])
    nisa.sendrecv(mine, theirs, 1 - me, 1 - me, 0)
    nisa.tensor_scalar(theirs, theirs, nl.multiply, 2.0 + me)
    nisa.dma_copy(out[4 * me : 4 * me + 4, :], theirs)
    nisa.core_barrier(out, [0, 1])
    return out


def test_programs_that_synchronize_replay_from_one_tape():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, tape = taped(two_programs[2], [x])
    assert_equal(result, launch(replay_tape(tape), [x]))
    assert tape.divided
    assert_equal(launch(two_programs[2], [x + 1]), launch(replay_tape(tape), [x + 1]))


# -- planted ---------------------------------------------------------------------------------------


def changed(tape, at, **fields):
    """A tape with another step at a place."""
    steps = list(tape.steps)
    steps[at] = steps[at]._replace(**fields)
    return dataclasses.replace(tape, steps=steps)


def differs(result, tape, args, keywords):
    """Return whether its replay gives other outputs, or raises."""
    try:
        other = launch(replay_tape(tape), args, keywords)
    except NkiError:
        return True
    return any(
        one.tobytes() != two.tobytes()
        for one, two in zip(result.outputs, other.outputs, strict=True)
    )


def planted(tape):
    """Yield the tape without one of its steps, with two operands swapped, with another operator."""
    for at, step in enumerate(tape.steps):
        if step.call != "allocate":
            yield (
                f"without {at}",
                dataclasses.replace(tape, steps=tape.steps[:at] + tape.steps[at + 1 :]),
            )
        text = repr(step.args)
        place = {"issue": 1, "placed": 1, "into": 2}.get(step.call)
        operands = () if place is None else step.args[place]
        if len(operands) == 2 and "subtract" in text:
            args = (*step.args[:place], operands[::-1], *step.args[place + 1 :])
            yield f"swapped {at}", changed(tape, at, args=args)
        added, multiplied = (
            TapedForm("Operator", (name,)) for name in ("add", "multiply")
        )
        if "'multiply'" in text:
            args = tuple(
                tuple(added if o == multiplied else o for o in one)
                if type(one) is tuple
                else one
                for one in step.args
            )
            yield f"operator {at}", changed(tape, at, args=args)


@every("name", ["nki.rope_rows", "nki.matmul_hoisted", "classic.vector_add_naive"])
def test_a_change_of_the_tape_shows(name):
    args, keywords = arrays_of(KERNELS[name], 1)
    result, tape = taped(KERNELS[name], args, keywords)
    assert not differs(result, tape, args, keywords)
    plants = dict(planted(tape))
    assert len(plants) > 3
    hidden = [
        plant
        for plant, one in plants.items()
        if not differs(result, one, args, keywords)
    ]
    assert hidden == []


# -- hostile ---------------------------------------------------------------------------------------


def test_other_arrays_are_refused():
    args, keywords = arrays_of(KERNELS["nki.softmax_rows"], 1)
    _, tape = taped(KERNELS["nki.softmax_rows"], args, keywords)
    with pytest.raises(
        ReplayError, match=r"received: \[5, 7\] float32\n *limit: *\[130, 7\]"
    ):
        launch(replay_tape(tape), [args[0][:5]], keywords)


HOSTILE = (
    None,
    True,
    -1,
    2**70,
    10**9,
    "x",
    "Engine",
    [],
    [[]],
    {},
    {"Access": []},
    0.5,
)


def leaves(value, path=()):
    """The place of each value in a document."""
    yield path
    pairs = value.items() if type(value) is dict else ()
    for key, one in enumerate(value) if type(value) is list else pairs:
        yield from leaves(one, (*path, key))


def test_no_document_does_worse_than_an_error():
    """Each value is replaced by a wrong one: a clear error, or a launch that works."""
    args, keywords = arrays_of(KERNELS["classic.vector_add_naive"], 1)
    _, tape = taped(KERNELS["classic.vector_add_naive"], args, keywords)
    document = json.loads(tape_to_json(tape))
    refused = 0
    for number, path in enumerate(leaves(document)):
        if not path:
            continue
        hostile = json.loads(json.dumps(document))
        place = hostile
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = HOSTILE[number % len(HOSTILE)]
        try:
            launch(replay_tape(tape_from_json(json.dumps(hostile))), args, keywords)
        except (TapeFormatError, NkiError, RuleWarning):
            refused += 1
    assert refused > 200


@every(
    "text",
    ["", "[]", "{}", '{"format":"difftest tape","version":1}', "[" * 10**5, "NaN"],
)
def test_a_file_that_is_no_tape_is_rejected(text):
    with pytest.raises(TapeFormatError, match="not a tape"):
        tape_from_json(text)

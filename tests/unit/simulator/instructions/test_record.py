import dataclasses
import gc
import importlib
import inspect
import pkgutil
import random
import re
import weakref

import numpy as np
import pytest

from difftest.cli.signatures import LIMITS
from difftest.simulator import (
    TRN1,
    TRN2,
    Engine,
    KernelError,
    NkiError,
    instructions,
    launch,
)
from difftest.simulator.core import current
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import collectives
from difftest.simulator.frontend.nki import isa as todays_isa
from difftest.simulator.frontend.nki import language as todays_language
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.elementwise import result_like, tensor_tensor
from difftest.simulator.instructions.record import (
    EFFECTS,
    INSTRUCTIONS,
    ISA,
    Role,
    instruction,
)
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.trace import Attributes
from difftest.timing.cost_model import cost_evidence
from difftest.tools.api.documented import CLASSIC, documented_names
from tests.every import every
from tests.unit.simulator.instructions.calls.examples import EXAMPLES, drawn
from tests.unit.simulator.on_tiles import normal, on_tiles

PACKAGE = instructions.__name__
CLASSIC_RECORDS = {
    name: record for name, record in INSTRUCTIONS.items() if record.classic
}


def limits_read(functions):
    """The machine's limits in the source of rules, and of functions that they call."""
    read = set()
    for function in functions:
        if inspect.isfunction(function) and function.__module__.startswith(PACKAGE):
            read |= set(re.findall(r"\bmachine\.(\w+)", inspect.getsource(function)))
            held = [cell.cell_contents for cell in function.__closure__ or ()]
            called = map(function.__globals__.get, function.__code__.co_names)
            read |= limits_read([*held, *called])
    return read & LIMITS.keys()


@every("name", sorted(INSTRUCTIONS | EFFECTS))
def test_each_limit_that_rules_check_is_declared(name):
    record = (INSTRUCTIONS | EFFECTS)[name]
    rules = [*record.rules, *(one for own in record.only.values() for one in own)]
    assert set(record.limits) == limits_read(rules)


def test_each_record_is_complete():
    """Records of modules that frontends do not load are included."""
    for module in pkgutil.iter_modules(instructions.__path__):
        importlib.import_module(f"{instructions.__name__}.{module.name}")
    assert len(INSTRUCTIONS) > 40
    assert len(EFFECTS) > 15
    assert not INSTRUCTIONS.keys() & EFFECTS.keys()
    for name, record in (INSTRUCTIONS | EFFECTS).items():
        assert record.name == name
        assert record.engines
        assert record.destinations or name in EFFECTS
        assert record.pages
        assert record.summary.endswith(".")
        assert len(record.summary) < 100
        assert record.meaning.__doc__.startswith(record.summary)
        names = [role.name for role in record.operands] + list(record.options)
        assert len(set(names)) == len(names)


PAGES = {one.page for one in documented_names(CLASSIC)}


@every("name", sorted(INSTRUCTIONS))
def test_the_pages_of_a_record_are_documented(name):
    """Classic records have pages at the classic dialect's tag, the current dialect's have none."""
    record = INSTRUCTIONS[name]
    assert set(record.pages) & PAGES == (set(record.pages) if record.classic else set())


def test_each_documented_instruction_has_a_record():
    """activation_reduce is activation, and two engines' transposes are one."""
    documented = {
        one.page for one in documented_names(CLASSIC) if one.section == "NKI ISA"
    }
    assert documented == {
        page
        for record in CLASSIC_RECORDS.values()
        for page in record.pages
        if page.startswith(ISA)
    }


def test_the_timing_model_knows_each_instruction():
    known = {
        name
        for name, record in CLASSIC_RECORDS.items()
        if any(
            cost_evidence(record.name, record.purpose, engine, TRN2)
            for engine in record.engines
        )
    }
    assert set(CLASSIC_RECORDS) == known


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="instruction nc_matmul is registered twice"):

        @instruction(
            Engine.TENSOR, operands=(Role("data"),), result=result_like("data")
        )
        def nc_matmul(call, data):
            """Another."""


def test_an_instruction_without_a_docstring_is_refused():
    with pytest.raises(ValueError, match="instruction move needs a docstring"):

        @instruction(
            Engine.TENSOR,
            operands=(Role("data"),),
            result=result_like("data"),
            table={},
        )
        def move(call, data):
            return data


@every(
    "named, runs_on", [(Engine.UNKNOWN, Engine.TENSOR), (Engine.VECTOR, Engine.VECTOR)]
)
def test_the_engine_is_the_first_unless_named(named, runs_on):
    def kernel():
        tile = nl.zeros((4, 8), nl.float32)
        gate.issue(INSTRUCTIONS["nc_transpose"], (tile,), engine=named)

    assert launch(kernel).trace.events[-1].engine is runs_on


def test_an_engine_that_does_not_have_the_instruction():
    def kernel():
        tile = nl.zeros((4, 8), nl.float32)
        gate.issue(INSTRUCTIONS["nc_transpose"], (tile,), engine=Engine.SCALAR)

    with pytest.raises(KernelError) as caught:
        launch(kernel)
    assert caught.value.received == "engine=scalar"
    assert caught.value.limit == "tensor, vector"


def test_a_signature_is_checked_once(monkeypatch):
    """Another shape, dtype or memory is another signature; other data and places are not."""
    checked = []
    check = gate.check_call
    monkeypatch.setattr(
        gate, "check_call", lambda *args: checked.append(args) or check(*args)
    )

    def kernel():
        current().calls.clear()
        tile = nl.zeros((8, 16), nl.float32)
        for start in range(4):
            nl.add(tile[:, start : start + 4], tile[:, 0:4])
        before = len(checked)
        nl.add(tile[:, 0:5], tile[:, 0:5])
        nl.add(tile[0:4, 0:4], tile[0:4, 0:4])
        nl.add(tile[:, 0:4], nl.zeros((8, 4), nl.bfloat16))
        nl.add(tile[:, 0:4], nl.zeros((8, 4), nl.float32, buffer=nl.psum))
        return before

    with pytest.raises(KernelError, match="a kernel returns tensors"):
        launch(kernel)
    assert [args[1].instruction.name for args in checked].count("tensor_tensor") == 5


def test_a_checked_call_is_reused_for_one_machine_and_dialect(
    monkeypatch,
):
    checked = []
    check = gate.check_call
    monkeypatch.setattr(gate, "_CALLS", {})
    monkeypatch.setattr(
        gate, "check_call", lambda *args: checked.append(args) or check(*args)
    )

    def kernel():
        tile = nl.zeros((8, 16), nl.float32)
        nl.add(tile, tile)

    counts = []
    for machine in (TRN2, TRN2, TRN1, dataclasses.replace(TRN1, partitions=64), TRN1):
        launch(kernel, machine=machine)
        counts.append(len(checked))
    assert counts == [2, 2, 4, 6, 6]


def test_a_checked_call_holds_no_tensor():
    made = []
    new_tile = gate.new_tile

    def noted(core, call):
        made.append(weakref.ref((tile := new_tile(core, call))._storage.data))
        return tile

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gate, "new_tile", noted)
        for name in sorted(EXAMPLES):
            drawn(name, random.Random(1).choice).run("record")
    gc.collect()
    assert len(made) > 40
    assert not [one for one in made if one() is not None]


def test_an_error_names_the_tensors_of_its_own_call():
    """A call of the same signature passed before, with another tensor."""

    def kernel(x, first, second):
        data = nl.load(x)
        for places, name in ((first, "fits"), (second, "leaves")):
            index = nl.ndarray((8, 4), np.uint32, name=name, buffer=nl.sbuf)
            index[...] = nl.load(places)
            row = nl.ndarray(
                (8, 16), np.float32, name=f"row that {name}", buffer=nl.sbuf
            )
            row[...] = data
            nl.gather_flattened(row, index)

    places = np.zeros((8, 4), np.uint32)
    with pytest.raises(OutOfBoundsError) as caught:
        launch(kernel, [normal(8, 16), places, places + 16])
    assert "row that leaves" in caught.value.received


def test_a_number_is_no_part_of_a_signature():
    """-0.0 equals 0.0, and is another number."""
    values = np.zeros((2, 3), np.float32)
    plus, minus = on_tiles(
        lambda x: (nl.multiply(x, 0.0), nl.multiply(x, -0.0)), values
    )
    assert not np.signbit(plus).any()
    assert np.signbit(minus).all()


@every(
    "option, one, other",
    [
        ("negate", 1, True),
        ("range_start", 0.0, -0.0),
        ("range_start", np.float32(0), -np.float32(0)),
        ("tile_position", (0, 0), (False, 0)),
    ],
)
def test_options_that_are_equal_and_not_the_same_are_two_signatures(option, one, other):
    """The trace says which of them the kernel gave, whichever came first."""

    ops, least = (ALU_OPS["less"], ALU_OPS["less"]), float(np.finfo(np.float32).min)
    add = ALU_OPS["add"]
    largest = ALU_OPS["maximum"]
    calls = {
        "negate": lambda value: ("tensor_reduce", 1, (add, (1,), value, False)),
        "range_start": lambda value: (
            "range_select",
            3,
            (*ops, value, least, largest, Accumulate.IDLE),
        ),
        "tile_position": lambda value: ("nc_matmul", 2, (False, value, (128, 128), "")),
    }

    def kernel():
        vector = nl.zeros((4, 1), nl.float32)
        for value in (one, other):
            name, operands, options = calls[option](value)
            others = (None,) * (len(INSTRUCTIONS[name].destinations) - 1)
            gate.issue(INSTRUCTIONS[name], (vector,) * operands, options, others=others)

    events = launch(kernel, machine=TRN2).trace.events[-2:]
    assert [repr(event.arguments[option]) for event in events] == [
        repr(value.item() if isinstance(value, np.generic) else value)
        for value in (one, other)
    ]


@every("option", [object(), (1, frozenset({2})), 1j])
def test_an_option_that_the_trace_has_no_form_for(option):
    def kernel():
        tile = nl.zeros((4, 8), nl.float32)
        gate.issue(
            INSTRUCTIONS["tensor_reduce"], (tile,), (nl_add(), (1,), option, False)
        )

    with pytest.raises(
        KernelError, match=r"an instruction got a (object|frozenset|complex)"
    ):
        launch(kernel)


def nl_add():
    return ALU_OPS["add"]


def test_nothing_is_written_where_a_rule_is_broken():
    """The second of two destinations has a wrong shape, so the first keeps its values."""
    values = normal(4, 6)

    def kernel(x, out):
        tile = nl.load(x)
        wrong = nl.ndarray((4, 2), nl.float32)
        with pytest.raises(NkiError, match=r"writes reduce_res of shape \[4, 1\]"):
            nisa.activation_reduce(nl.exp, tile, reduce_op=np.add, reduce_res=wrong)
        nl.store(out, tile)

    out = np.zeros_like(values)
    launch(kernel, [values, out])
    np.testing.assert_array_equal(out, values)


SPELLING = {
    "nc_find_index8": {"all_ones"},
    "nc_match_replace8": {"backwards"},
    "collective_permute": {"replica_group"},
    "scalar_load": {"dst"},
    "scalar_store": {"src"},
}
"""Options without an argument: differences between the two dialects' pages, the pairs' members in a
permutation, and the scalar that a function returns or calls ``s``.
"""


def arguments(name):
    """The arguments of AWS's functions of this name, in both dialects."""
    modules = (nisa, nl, todays_isa, todays_language, collectives)
    functions = [vars(module).get(name) for module in modules]
    return {
        parameter
        for function in functions
        if callable(function)
        for parameter in inspect.signature(function).parameters
    }


@every("name", sorted(INSTRUCTIONS | EFFECTS))
def test_the_options_of_a_record_are_arguments_of_aws(name):
    """Records hold no state of the simulator: every option comes from an argument."""
    unknown = set((INSTRUCTIONS | EFFECTS)[name].options) - arguments(name)
    assert unknown == SPELLING.get(name, set())


def test_recorded_arguments_have_the_names_of_aws():
    known = set().union(
        *map(arguments, nisa.__all__), *map(arguments, todays_isa.__all__)
    )
    # accumulate is absent if the kernel left it to the compiler; nl.loop_reduce
    assert set(Attributes._fields) - known == {"inferred", "loop_indices"}


def test_an_option_without_a_default_is_required():
    def kernel(x):
        tile = nl.load(x)
        gate.issue(tensor_tensor, (tile, tile))

    with pytest.raises(KeyError, match="op"):
        launch(kernel, [np.ones((4, 4), np.float32)])

import inspect

import numpy as np
import pytest

from difftest.simulator import KernelError, NotModelledError, launch
from difftest.simulator.entry.kernel import as_kernel
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.errors import SignatureError
from difftest.simulator.frontend.arguments import (
    absent,
    as_accumulate,
    as_engine,
    no_extras,
)
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.dispatch import CLOSED
from difftest.simulator.frontend.nki import language as nki_nl
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.trace import Engine
from tests.every import every


def test_enumerations_have_the_documented_numbers():
    assert {e.name: e.value for e in nisa.engine} == {
        "tensor": 1,
        "vector": 5,
        "scalar": 2,
        "gpsimd": 3,
        "sync": 6,
        "unknown": 0,
    }
    assert [c.name for c in sorted(nisa.reduce_cmd)] == [
        "idle",
        "reset",
        "reduce",
        "reset_reduce",
    ]
    assert [m.name for m in sorted(nisa.dge_mode)] == [
        "none",
        "swdge",
        "hwdge",
        "unknown",
    ]
    assert [m.name for m in sorted(nisa.oob_mode)] == ["error", "skip"]
    assert [v.value for v in nisa.nc_version] == [2, 3]
    assert nisa.constants.engine.vector is nisa.vector_engine


@every("member", nisa.engine)
def test_engines_translate(member):
    assert as_engine(member, "f").value == member.name


@every("value", ["vector", 5, None, Engine.VECTOR])
def test_other_engines_are_refused(value):
    with pytest.raises(KernelError, match="f takes engine as a member") as caught:
        as_engine(value, "f")
    assert caught.value.received == f"engine={value!r}"


@every("command", nisa.reduce_cmd)
def test_commands_translate(command):
    assert as_accumulate(command, "f") is Accumulate[command.name.upper()]


@every("value", ["reset", None, 9])
def test_other_commands_are_refused(value):
    with pytest.raises(KernelError, match="f takes reduce_cmd as a member"):
        as_accumulate(value, "f")


def test_an_argument_that_is_not_honoured_is_named():
    no_extras("nl.load", {})
    with pytest.raises(NotModelledError) as caught:
        no_extras("nl.load", {"cache": 3})
    assert caught.value.happened == (
        "nl.load's argument 'cache' is not modelled by the embedded simulator"
    )
    assert caught.value.received == "cache=3"


OPEN = {
    f"{short}.{name}": function
    for short, module in (("nl", nl), ("nisa", nisa))
    for name, function in ((name, getattr(module, name)) for name in module.__all__)
    if inspect.isfunction(function) and f"{short}.{name}" not in CLOSED
}


@every("name", OPEN)
def test_no_function_ignores_an_argument(name):
    with pytest.raises(NotModelledError) as caught:
        launch(lambda: OPEN[name](extra=1), [])
    assert caught.value.happened.startswith(
        f"{name}'s argument 'extra' is not modelled"
    )
    assert caught.value.received == "extra=1"


def test_functions_are_all_looked_at():
    assert len(OPEN) > 110
    assert {name for name in OPEN if name.startswith("nisa.")} > {
        "nisa.nc_matmul",
        "nisa.memset",
    }


@every("name", CLOSED)
def test_a_fully_documented_function_accepts_no_other_argument(name):
    short, _, own = name.partition(".")
    function = getattr({"nl": nl, "nisa": nisa}[short], own)
    with pytest.raises(
        SignatureError, match=r"do not fit it\n *rule: .* takes \([^']*\n"
    ):
        launch(lambda: function(extra=1), [])


def test_absent_knows_documented_names_from_others():
    getattr_ = absent("nki.test", frozenset({"known"}), {"there": 1})
    with pytest.raises(NotModelledError, match=r"nki\.test\.known is not modelled"):
        getattr_("known")()
    with pytest.raises(
        AttributeError, match=r"module 'neuronxcc\.nki\.test' has no attribute 'x'"
    ):
        getattr_("x")


@every("kind, language", [(jit, nki_nl), (as_kernel, nl)])
def test_a_name_of_any_kind_is_text_in_the_trace(kind, language):
    names = (None, "tile", 3, np.arange(3))

    def kernel():
        for name in names:
            language.ndarray((4, 4), language.float32, name=name)

    told = [one.name for one in launch(kind(kernel)).trace.allocations]
    assert told == ["", "tile", "3", "[0 1 2]"]

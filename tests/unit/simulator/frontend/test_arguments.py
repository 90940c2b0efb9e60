from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import KernelError, NotModelledError, launch
from difftest.simulator.frontend.arguments import absent, as_accumulate, as_engine, no_extras
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.trace import Engine
from tests.every import every

DATA = np.ones((4, 8), np.float32)


def test_enumerations_have_the_documented_numbers():
    assert {e.name: e.value for e in nisa.engine} == {
        "tensor": 1,
        "vector": 5,
        "scalar": 2,
        "gpsimd": 3,
        "sync": 6,
        "unknown": 0,
    }
    assert [c.name for c in sorted(nisa.reduce_cmd)] == ["idle", "reset", "reduce", "reset_reduce"]
    assert [m.name for m in sorted(nisa.dge_mode)] == ["none", "swdge", "hwdge", "unknown"]
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


CALLS = {
    "nl.ndarray": lambda t: nl.ndarray((2, 2), nl.float32, extra=1),
    "nl.zeros": lambda t: nl.zeros((2, 2), nl.float32, extra=1),
    "nl.ones": lambda t: nl.ones((2, 2), nl.float32, extra=1),
    "nl.full": lambda t: nl.full((2, 2), 1, nl.float32, extra=1),
    "nl.zeros_like": lambda t: nl.zeros_like(t, extra=1),
    "nl.empty_like": lambda t: nl.empty_like(t, extra=1),
    "nl.rand": lambda t: nl.rand((2, 2), extra=1),
    "nl.random_seed": lambda t: nl.random_seed(1, extra=1),
    "nl.shared_constant": lambda t: nl.shared_constant(DATA, extra=1),
    "nl.affine_range": lambda t: nl.affine_range(4, extra=1),
    "nl.sequential_range": lambda t: nl.sequential_range(4, extra=1),
    "nl.add": lambda t: nl.add(t, t, extra=1),
    "nl.invert": lambda t: nl.invert(t, extra=1),
    "nl.exp": lambda t: nl.exp(t, extra=1),
    "nl.max": lambda t: nl.max(t, axis=1, extra=1),
    "nl.mean": lambda t: nl.mean(t, axis=1, extra=1),
    "nl.var": lambda t: nl.var(t, axis=1, extra=1),
    "nl.softmax": lambda t: nl.softmax(t, axis=1, extra=1),
    "nl.where": lambda t: nl.where(t, t, t, extra=1),
    "nl.loop_reduce": lambda t: nl.loop_reduce(t, np.add, [0], extra=1),
    "nl.negative": lambda t: nl.negative(t, extra=1),
    "nl.reciprocal": lambda t: nl.reciprocal(t, extra=1),
    "nl.load": lambda t: nl.load(t, extra=1),
    "nl.store": lambda t: nl.store(t, t, extra=1),
    "nl.copy": lambda t: nl.copy(t, extra=1),
    "nl.broadcast_to": lambda t: nl.broadcast_to(t, shape=(4, 8), extra=1),
    "nl.load_transpose2d": lambda t: nl.load_transpose2d(t, extra=1),
    "nl.transpose": lambda t: nl.transpose(t, extra=1),
    "nl.matmul": lambda t: nl.matmul(t, t, extra=1),
    "nl.atomic_rmw": lambda t: nl.atomic_rmw(t, t, np.add, extra=1),
    "nl.device_print": lambda t: nl.device_print("x", t, extra=1),
    "nl.gather_flattened": lambda t: nl.gather_flattened(t, t, extra=1),
    "nisa.nc_matmul": lambda t: nisa.nc_matmul(t, t, extra=1),
    "nisa.nc_transpose": lambda t: nisa.nc_transpose(t, extra=1),
    "nisa.dma_transpose": lambda t: nisa.dma_transpose(t, extra=1),
    "nisa.tensor_copy": lambda t: nisa.tensor_copy(t, extra=1),
    "nisa.tensor_copy_dynamic_src": lambda t: nisa.tensor_copy_dynamic_src(t, extra=1),
    "nisa.tensor_copy_dynamic_dst": lambda t: nisa.tensor_copy_dynamic_dst(dst=t, src=t, extra=1),
    "nisa.tensor_copy_predicated": lambda t: nisa.tensor_copy_predicated(
        src=t, dst=t, predicate=t, extra=1
    ),
    "nisa.memset": lambda t: nisa.memset((2, 2), 1, nl.float32, extra=1),
    "nisa.iota": lambda t: nisa.iota(nl.arange(4)[None, :], nl.int32, extra=1),
    "nisa.tensor_tensor": lambda t: nisa.tensor_tensor(t, t, np.add, extra=1),
    "nisa.tensor_scalar": lambda t: nisa.tensor_scalar(t, np.add, 1.0, extra=1),
    "nisa.scalar_tensor_tensor": lambda t: nisa.scalar_tensor_tensor(
        data=t, op0=np.add, operand0=1.0, op1=np.add, operand1=t, extra=1
    ),
    "nisa.reciprocal": lambda t: nisa.reciprocal(t, extra=1),
    "nisa.activation": lambda t: nisa.activation(nl.exp, t, extra=1),
    "nisa.activation_reduce": lambda t: nisa.activation_reduce(
        nl.exp, t, reduce_op=np.add, reduce_res=t, extra=1
    ),
    "nisa.tensor_reduce": lambda t: nisa.tensor_reduce(np.add, t, 1, extra=1),
    "nisa.tensor_partition_reduce": lambda t: nisa.tensor_partition_reduce(np.add, t, extra=1),
    "nisa.tensor_scalar_reduce": lambda t: nisa.tensor_scalar_reduce(
        data=t, op0=np.add, operand0=1.0, reduce_op=np.add, reduce_res=t, extra=1
    ),
    "nisa.tensor_tensor_scan": lambda t: nisa.tensor_tensor_scan(t, t, 0, np.add, np.add, extra=1),
    "nisa.bn_stats": lambda t: nisa.bn_stats(t, extra=1),
    "nisa.bn_aggr": lambda t: nisa.bn_aggr(t, extra=1),
    "nisa.dropout": lambda t: nisa.dropout(t, 0.5, extra=1),
    "nisa.affine_select": lambda t: nisa.affine_select(nl.arange(4)[:, None] < 2, t, 0, extra=1),
    "nisa.range_select": lambda t: nisa.range_select(
        on_true_tile=t, comp_op0=np.less, comp_op1=np.less, bound0=t, bound1=t, extra=1
    ),
    "nisa.select_reduce": lambda t: nisa.select_reduce(
        dst=t, predicate=t, on_true=t, on_false=t, extra=1
    ),
    "nisa.max8": lambda t: nisa.max8(src=t, extra=1),
    "nisa.nc_find_index8": lambda t: nisa.nc_find_index8(data=t, vals=t, extra=1),
    "nisa.nc_match_replace8": lambda t: nisa.nc_match_replace8(data=t, vals=t, imm=0, extra=1),
    "nisa.nc_stream_shuffle": lambda t: nisa.nc_stream_shuffle(t, t, [0] * 32, extra=1),
}


@every("name", CALLS)
def test_no_function_ignores_an_argument(name):
    def kernel(x):
        CALLS[name](nl.load(x))

    with pytest.raises(NotModelledError) as caught:
        launch(kernel, [DATA])
    assert caught.value.happened.startswith(f"{name}'s argument 'extra' is not modelled")
    assert caught.value.received == "extra=1"


def test_absent_knows_documented_names_from_others():
    getattr_ = absent("nki.test", frozenset({"known"}), {"there": 1})
    with pytest.raises(NotModelledError, match=r"nki\.test\.known is not modelled"):
        getattr_("known")()
    with pytest.raises(AttributeError, match=r"module 'neuronxcc\.nki\.test' has no attribute 'x'"):
        getattr_("x")

"""Rejections before or outside the rules of a record; test_limits has the rules' limits."""

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN3, Engine, NkiError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.effects import rand2, rng
from difftest.simulator.instructions.gather import nc_n_gather
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

X = normal(4, 8)
N = np.ones((4, 8), np.int32)


def hbm():
    return nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)


def random(low, high):
    return gate.issue(rand2, (low, high), dst=nl.ndarray((4, 8), nl.float32))


CLASSIC = {  # the rule: a call of x float32 and n int32, both [4, 8], that breaks it
    "bitvec operators take integer operands of the data's width": lambda x, n: (
        nisa.tensor_scalar(n, nl.bitwise_or, 1.5)
    ),
    "bitvec operators take integer operands": lambda x, n: nl.bitwise_or(
        nl.copy(n, dtype=nl.uint8), 256
    ),
    "tensor_scalar takes operand0 as a scalar or a vector with one": lambda x, n: (
        nisa.tensor_scalar(x, np.add, x[0:2, 0:1])
    ),
    "tensor_tensor runs on the engines": lambda x, n: nisa.tensor_tensor(
        x, x, nl.power, engine=nisa.vector_engine
    ),
    "takes an activation function": lambda x, n: nisa.activation(np.add, x),
    "takes an activation": lambda x, n: nisa.activation([nl.exp], x),
    "takes reduce_cmd as a member of nki.isa.reduce_cmd": lambda x, n: nisa.activation(
        nl.exp, x, reduce_op=np.add, reduce_cmd="reset"
    ),
    "activation_reduce takes an operator of nki.language": lambda x, n: (
        nisa.activation_reduce(
            nl.exp, x, reduce_op=None, reduce_res=nl.ndarray((4, 1), nl.float32)
        )
    ),
    "sequence_bounds takes segment_ids of shape": lambda x, n: nisa.sequence_bounds(
        segment_ids=x
    ),
    "takes a tile indexed by a tile": lambda x, n: nisa.tensor_copy_dynamic_src(x),
    "32-bit integers": lambda x, n: nisa.iota(nl.arange(3)[None, :] * 2**31, nl.int32),
    "local_gather is undefined for indices beyond src_buffer": lambda x, n: (
        nisa.local_gather(nl.zeros((16, 4), nl.float32), nl.full((16, 2), 4, nl.uint16))
    ),
    "nl.load_transpose2d takes two dimensions": lambda x, n: nl.load_transpose2d(
        hbm().reshape((2, 2, 8))
    ),
    "nl.atomic_rmw takes a destination indexed by a tile": lambda x, n: nl.atomic_rmw(
        hbm(), 1, op=np.add
    ),
}
TODAYS = {
    "indices of elements of the data": lambda x, n: gate.issue(
        nc_n_gather, (x, nl.full((4, 2), 8, nl.uint32))
    ),
    "rand2 takes a min below its max": lambda x, n: random(2.0, 1.0),
    "rand2 takes a min below": lambda x, n: random(x[:, 0:1], x[:, 0:1]),
}
TOO_OLD = {
    "rng runs on the engines that implement it": lambda x, n: gate.issue(
        rng, (), dst=nl.ndarray((4, 8), nl.int32), engine=Engine.GPSIMD
    ),
}


@every("rule", {**CLASSIC, **TODAYS, **TOO_OLD})
def test_calls_against_a_rule_are_rejected(rule):
    if rule in TODAYS:
        machine = {"machine": TRN3}
    elif rule in TOO_OLD:
        machine = {"machine": TRN1}
    else:
        machine = {}
    with pytest.raises(NkiError, match=rule):
        on_tiles({**CLASSIC, **TODAYS, **TOO_OLD}[rule], X, N, **machine)

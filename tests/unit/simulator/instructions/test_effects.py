"""Each rule of each effect, broken alone: by a legal call with one argument that is not.

And no event comes from elsewhere than the gate and the effects.
"""

from pathlib import Path

import numpy as np
import pytest

import difftest.simulator
from difftest.simulator import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    ShapeError,
    launch,
    launch_ranks,
)
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions.record import EFFECTS
from tests.every import every


def hbm(rows, dtype=nl.float32):
    """Return a function that makes one tensor in HBM."""
    return lambda: [nl.zeros((rows, 2), dtype, buffer=nl.shared_hbm)]


def channel(rows, dtype=nl.float32):
    return lambda: [hbm(rows, dtype)()]


GROUP = ncc.ReplicaGroup([[0, 1]])
PAIRS = [(0, 1), (1, 0)]
IN_GROUP = {"replica_group": GROUP}
ALONG = {"collective_dim": 0}
BY_TABLE = {
    **IN_GROUP,
    "srcs": hbm(4),
    "dsts": hbm(4),
    "recv_counts_known": True,
    "metadata_tensor": lambda: nl.shared_constant(np.zeros((3, 2), np.uint32)),
}
CHIP = {
    **BY_TABLE,
    "replica_group": ncc.ReplicaGroup([[0, 1, 2, 3]]),
    "metadata_tensor": lambda: nl.shared_constant(np.zeros((3, 4), np.uint32)),
}
RING = {**IN_GROUP, "dsts_by_channel": channel(4)}
LEGAL = {
    "all_reduce": {**IN_GROUP, "srcs": hbm(4), "dsts": hbm(4), "op": nl.add},
    "all_gather": {**IN_GROUP, **ALONG, "srcs": hbm(4), "dsts": hbm(8)},
    "reduce_scatter": {
        **IN_GROUP,
        **ALONG,
        "srcs": hbm(4),
        "dsts": hbm(2),
        "op": nl.add,
    },
    "all_to_all": {**IN_GROUP, **ALONG, "srcs": hbm(4), "dsts": hbm(4)},
    "collective_permute": {
        "srcs": hbm(4),
        "dsts": hbm(4),
        "source_target_pairs": PAIRS,
    },
    "collective_permute_implicit": {**RING, "srcs_by_channel": channel(4)},
    "collective_permute_implicit_reduce": {
        **RING,
        "srcs0_by_channel": channel(4),
        "srcs1_by_channel": channel(4),
        "op": nl.add,
    },
    "all_gather_v": CHIP,
    "all_to_all_v": BY_TABLE,
}
ON_CHIP = (
    lambda: [nl.zeros((4, 2), nl.float32)],
    lambda: [[nl.zeros((4, 2), nl.float32)]],
)
CUBES = (
    lambda: [nl.zeros((4, 2, 2), nl.float32)],
    lambda: [[nl.zeros((4, 2, 2), nl.float32)]],
)
CHANNELS = (
    "srcs_by_channel",
    "srcs0_by_channel",
    "srcs1_by_channel",
    "dsts_by_channel",
)
BROKEN = {
    "one_memory": (
        {"dsts": ON_CHIP[0], "dsts_by_channel": ON_CHIP[1]},
        BufferError,
        "all its tensors in hbm",
    ),
    "one_dtype": (
        {"dsts": hbm(4, nl.bfloat16), "dsts_by_channel": channel(4, nl.bfloat16)},
        DtypeError,
        "of one dtype",
    ),
    "one_of(op": ({"op": nl.multiply}, KernelError, "one of three operators"),
    "one_of(collective_dim": (
        {"collective_dim": 1},
        KernelError,
        "along few dimensions",
    ),
    "_along": ({"collective_dim": 1}, KernelError, "along few dimensions"),
    "_two_dimensions_on_chip": (
        dict.fromkeys(("srcs", "dsts"), CUBES[0]) | dict.fromkeys(CHANNELS, CUBES[1]),
        LimitError,
        "two dimensions on chip",
    ),
    "_divides": ({"srcs": hbm(3)}, ShapeError, "splits src evenly"),
    "same_shape": ({"srcs1_by_channel": channel(3)}, ShapeError, "of one shape"),
    "one_of(has_rdispls": ({"has_rdispls": True}, KernelError, "current limitations"),
    "_of_one_chip": (
        {**IN_GROUP, "metadata_tensor": BY_TABLE["metadata_tensor"]},
        LimitError,
        "has 4 ranks",
    ),
    "_may_displace": ({"has_rdispls": True}, KernelError, "NeuronSwitch-based"),
}


MAKE = ("srcs", "dsts", "metadata_tensor", "dsts_by_channel")
MAKE += ("srcs_by_channel", "srcs0_by_channel", "srcs1_by_channel")
"""Arguments that are tensors, which each kernel makes."""


def called(name, *, grid=None, **changed):
    """Call a collective on two ranks, or on the ranks of a chip and their cores."""
    of_chip = LEGAL[name] is CHIP
    grid = (2,) if grid is None and of_chip else grid
    arguments = {**LEGAL[name], **changed}

    def kernel():
        tensors = {side: one() for side, one in arguments.items() if side in MAKE}
        getattr(ncc, name)(**{**arguments, **tensors})

    launch_ranks(
        jit(kernel)[grid] if grid else jit(kernel), [()] * (4 if of_chip else 2)
    )


@every("grid", [(), (1,)])
def test_a_chips_collective_is_for_two_cores(grid):
    with pytest.raises(LimitError, match="LNC=2") as caught:
        called("all_gather_v", grid=grid)
    assert caught.value.received.endswith(f"grid {grid}" if grid else "no grid")


@every("name", LEGAL)
def test_the_call_is_legal_otherwise(name):
    called(name)


@every("name, rule", [(name, rule) for name in LEGAL for rule in EFFECTS[name].rules])
def test_each_rule_of_a_collective_is_checked(name, rule):
    (changed, error, text) = next(
        row for start, row in BROKEN.items() if rule.__name__.startswith(start)
    )
    with pytest.raises(error) as caught:
        called(
            name, **{one: value for one, value in changed.items() if one in takes(name)}
        )
    assert text in caught.value.rule


def takes(name):
    """The arguments of a call that are changed."""
    return {
        *LEGAL[name],
        *(("has_rdispls",) if LEGAL[name] in (BY_TABLE, CHIP) else ()),
    }


def two():
    return nl.zeros((1, 2), nl.int32)


@every(
    "call",
    [
        lambda: nisa.register_load(nisa.register_alloc(), two()),
        lambda: nisa.register_store(two(), nisa.register_alloc(1)),
        lambda: nisa.scalar_load(two()),
        lambda: nisa.scalar_store(two(), nisa.scalar_load(nl.zeros((1, 1), nl.int32))),
    ],
)
def test_a_scalar_is_one_element(call):
    with pytest.raises(ShapeError) as caught:
        launch(jit(lambda: call()))
    assert caught.value.rule.endswith("of one element")


# -- events ----------------------------------------------------------------------------------------


def emitters(folder):
    """The modules that put an event into the trace."""
    return sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        if "core.count(" in file.read_text(encoding="utf-8")
    )


def test_no_event_comes_from_elsewhere():
    (folder,) = map(Path, difftest.simulator.__path__)
    assert emitters(folder) == ["instructions/effects.py", "instructions/gate.py"]


def test_a_planted_event_is_found(tmp_path):
    planted = tmp_path / "a.py"
    planted.write_text("def note(core, kind):\n    core.count(kind)\n")
    assert emitters(tmp_path) == ["a.py"]

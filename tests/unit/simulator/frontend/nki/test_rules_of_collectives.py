"""Each rule of ``nki.collectives`` on each collective: refused, or allowed, as AWS's stubs say.

Source: the stubs of ``nki.collectives`` at v2.32.0. A rule that one stub states of "collectives"
holds for all of them.
"""

import numpy as np

from difftest.simulator import TRN2, TRN3, NkiError, launch_ranks
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

PAIR = [[0, 1]]
CHIP = [[0, 1, 2, 3]]
OF_A_CHIP = ("all_gather_v",)
"""Collectives of the four ranks of a chip, with two cores each."""
SHAPES = {"all_gather": (8, 2), "reduce_scatter": (2, 2)}
"""Shapes of the destination for a source of (4, 2); (4, 2) for the others."""


def tensor(shape, dtype=nl.float32, buffer=nl.shared_hbm):
    return nl.zeros(shape, dtype, buffer=buffer)


def lists(name, tensors):
    """One side of a call: a list of tensors, or of channels."""
    return [[one] for one in tensors] if "implicit" in name else list(tensors)


def arguments(name, srcs, dsts, **changed):
    """The arguments of a call, by its own names."""
    groups = CHIP if name in OF_A_CHIP else PAIR
    given = {"replica_group": ncc.ReplicaGroup(groups)}
    if name == "collective_permute":
        given = {"source_target_pairs": [(0, 1), (1, 0)]}
    sides = {"srcs": lists(name, srcs), "dsts": lists(name, dsts)}
    if name == "collective_permute_implicit":
        sides = {f"{side}_by_channel": value for side, value in sides.items()}
    if name == "collective_permute_implicit_reduce":
        channels = lists(name, srcs)
        sides = {"srcs0_by_channel": channels, "srcs1_by_channel": channels}
        sides["dsts_by_channel"] = lists(name, dsts)
    if "implicit" in name:
        given["channel_ids"] = list(range(len(srcs)))
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        given["collective_dim"] = 0
    if name in ("all_reduce", "reduce_scatter", "collective_permute_implicit_reduce"):
        given["op"] = nl.add
    if name.endswith("_v"):
        table = np.zeros((3, len(groups[0])), np.uint32)
        given["metadata_tensor"] = nl.shared_constant(table)
        given["recv_counts_known"] = True
    return {**given, **sides, **changed}


def destination(name, shape):
    """The shape of the destination for a source of a shape."""
    first, *others = shape
    factor = {"all_gather": 2, "reduce_scatter": 0.5}.get(name, 1)
    return (int(first * factor), *others)


def as_it_is(name):
    return arguments(name, [tensor((4, 2))], [tensor(destination(name, (4, 2)))])


def on_chip(name):
    into = destination(name, (4, 2))
    return arguments(
        name, [tensor((4, 2), buffer=nl.sbuf)], [tensor(into, buffer=nl.sbuf)]
    )


def three_dimensions_on_chip(name):
    into = destination(name, (4, 2, 2))
    return arguments(
        name, [tensor((4, 2, 2), buffer=nl.sbuf)], [tensor(into, buffer=nl.sbuf)]
    )


def three_dimensions_in_hbm(name):
    return arguments(name, [tensor((4, 2, 2))], [tensor(destination(name, (4, 2, 2)))])


def two_memories(name):
    into = destination(name, (4, 2))
    return arguments(name, [tensor((4, 2))], [tensor(into, buffer=nl.sbuf)])


def several_tensors(name):
    into = destination(name, (4, 2))
    return arguments(name, [tensor((4, 2))] * 2, [tensor(into), tensor(into)])


def several_tensors_on_chip(name):
    into = destination(name, (4, 2))
    dsts = [tensor(into, buffer=nl.sbuf) for _ in range(2)]
    return arguments(name, [tensor((4, 2), buffer=nl.sbuf)] * 2, dsts)


def two_dtypes(name):
    into = destination(name, (4, 2))
    return arguments(name, [tensor((4, 2))], [tensor(into, nl.bfloat16)])


def along_the_second(name):
    if name == "all_gather":
        into = (4, 4)
    elif name == "reduce_scatter":
        into = (4, 1)
    else:
        into = (4, 2)
    given = arguments(name, [tensor((4, 2))], [tensor(into)])
    return {**given, "collective_dim": 1} if "collective_dim" in given else None


def along_the_second_on_chip(name):
    if name == "all_gather":
        into = (4, 4)
    elif name == "reduce_scatter":
        into = (4, 1)
    else:
        into = (4, 2)
    srcs, dsts = ([tensor(shape, buffer=nl.sbuf)] for shape in ((4, 2), into))
    given = arguments(name, srcs, dsts)
    return {**given, "collective_dim": 1} if "collective_dim" in given else None


def multiplied(name):
    given = as_it_is(name)
    return {**given, "op": nl.multiply} if "op" in given else None


def uneven(name):
    """Three rows among two ranks."""
    if name == "all_gather":
        into = (6, 2)
    elif name == "reduce_scatter":
        into = (1, 2)
    else:
        into = (3, 2)
    return arguments(name, [tensor((3, 2))], [tensor(into)])


def no_list(name):
    given = as_it_is(name)
    side = next(key for key in given if key.startswith("srcs"))
    return {**given, side: tensor((4, 2))}


def no_group(name):
    given = as_it_is(name)
    return {**given, "replica_group": PAIR} if "replica_group" in given else None


def prioritised(name):
    return {**as_it_is(name), "priority": 1}


NAMES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_reduce",
    "all_gather_v",
    "all_to_all_v",
)
IN_SBUF = {
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "collective_permute_implicit",
    "collective_permute_implicit_reduce",
}
"""Collectives whose tensors may lie in SBUF."""
OF_SEVERAL = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
"""Collectives whose call takes several tensors at once."""
BY_CHANNEL = {"collective_permute_implicit", "collective_permute_implicit_reduce"}
ALL = set(NAMES)
ALLOWED = {
    as_it_is: ALL,
    on_chip: IN_SBUF,
    three_dimensions_on_chip: set(),
    three_dimensions_in_hbm: ALL,
    two_memories: set(),
    several_tensors: OF_SEVERAL | BY_CHANNEL,
    several_tensors_on_chip: BY_CHANNEL,
    two_dtypes: set(),
    along_the_second: set(),
    along_the_second_on_chip: {"all_gather"},
    multiplied: set(),
    uneven: ALL - {"reduce_scatter", "all_to_all"},
    no_list: set(),
    no_group: set(),
    prioritised: set(),
}
"""By a way to call a collective, the collectives that allow it."""


def outcome(name, way, machine=TRN2):
    """Return the error of a call, or whether the collective has the argument that the way is of."""
    made = []

    @jit
    def kernel():
        given = way(name)
        made.append(given is not None)
        if given is not None:
            getattr(ncc, name)(**given)

    try:
        if name in OF_A_CHIP:
            launch_ranks(kernel[2], [()] * len(CHIP[0]), machine=machine)
        else:
            launch_ranks(kernel, [(), ()], machine=machine)
    except NkiError as error:
        return error
    return all(made)


@every("name", NAMES)
@every("way", list(ALLOWED))
def test_a_rule_holds_for_each_collective(name, way):
    got = outcome(name, way)
    if got is not False:
        assert isinstance(got, NkiError) is (name not in ALLOWED[way])
        assert got is True or got.location.file == __file__


@every("name", NAMES)
def test_priorities_are_accepted_on_trn3(name):
    assert outcome(name, prioritised, TRN3) is True


def test_the_table_has_each_collective():
    others = {
        "ReplicaGroup",
        "rank_id",
        "collective_permute_implicit_current_processing_rank_id",
    }
    assert set(ncc.NAMES) - others == ALL

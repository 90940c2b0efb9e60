"""The objects that a candidate can reach by public attributes: none leads outside."""

import contextlib
import io
import os
import sys
import types

import numpy as np

from difftest.simulator.entry.install import embedded, modules
from difftest.tools.verdict.language import ATTRIBUTES, BUILTINS
from difftest.tools.verdict.worker import CandidateModules
from tests.every import every

WAYS_OUT = (types.ModuleType, types.FrameType, types.CodeType, io.IOBase, os.PathLike)
VALUES = (int, float, complex, str, bytes, bool, type(None), np.generic)


def today(a):
    import nki.isa as nisa
    import nki.language as nl

    tile = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    register = nisa.register_alloc(0)
    seen = [a, tile, tile[0:1], register]
    nl.fori_loop(0, 1, seen.append)
    SEEN.extend(reached(dict(enumerate(seen))))
    out = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def classic(a):
    import neuronxcc.nki.language as nl

    tile = nl.load(a)
    SEEN.extend(
        reached({"a": a, "tile": tile, "sum": tile + 1.0, "grid": nl.arange(4)})
    )
    out = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


SEEN = []


def reached(roots, steps=4):
    """Each object that is so many public attributes away, with the way to it."""
    known = {}
    near = [(str(name), value) for name, value in roots.items()]
    for _ in range(steps):
        near = [(way, one) for way, one in near if not isinstance(one, VALUES)]
        near = list(
            {id(one): (way, one) for way, one in near if id(one) not in known}.values()
        )
        known |= {id(one): (way, one) for way, one in near}
        near = [
            (f"{way}.{name}", member)
            for way, one in near
            for name, member in shown(one)
        ]
    return list(known.values())


def shown(value):
    """The public attributes of an object."""
    for name in dir(value):
        if (
            name[:1] not in "_@" and name not in ATTRIBUTES
        ):  # @: pytest's, of what asserts
            with contextlib.suppress(
                Exception
            ):  # asked for too early, or of another level
                yield name, getattr(value, name)


def ways_out(found, inside=()):
    return [
        way for way, one in found if isinstance(one, WAYS_OUT) and one not in inside
    ]


def test_the_embedded_modules_lead_to_no_other():
    made = modules()
    found = reached(made)
    assert ways_out(found, list(made.values())) == []
    assert len(found) > 500


@every("dialect", ["nki", "neuronxcc.nki"])
def test_what_a_kernel_holds_leads_nowhere(dialect):
    SEEN.clear()
    ones = np.ones((2, 2), np.float32)
    with embedded():
        if dialect == "nki":
            sys.modules[dialect].jit(today)(ones)
        else:
            sys.modules[dialect].simulate_kernel(
                sys.modules[dialect].jit(classic), ones
            )
    assert ways_out(SEEN) == []
    assert len(SEEN) > 20
    assert [way for way, one in SEEN if isinstance(one, np.ndarray)] == []


def test_the_lists_lead_to_no_module_that_is_not_listed():
    world = CandidateModules((), (), io.StringIO())
    shown = {name: world.imported(name, wanted=("x",)) for name in world._lists}
    found = reached(shown | {"builtins": world._builtins})
    out = [
        way
        for way in ways_out(found, list(shown.values()))
        if not way.startswith("sys.std")
    ]
    assert out == []
    assert set(world._builtins) - BUILTINS <= {
        *("__build_class__", "__import__", "__name__"),
        *("which way?", "whose?"),
    }


def test_a_way_out_is_found():
    leaky = types.SimpleNamespace(inner=types.SimpleNamespace(system=os))
    assert "leaky.inner.system" in ways_out(reached({"leaky": leaky}))

"""A walk over the values that a candidate's guards give: none leads out of the world.

The nightly profile goes deeper, and calls what it finds with values of the world.
"""

import io
import itertools
import types

import numpy as np
from hypothesis import settings

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.arguments import Members
from difftest.tools.verdict.sources import SourceFile
from difftest.tools.verdict.world.attributes import read
from difftest.tools.verdict.world.calls import call
from difftest.tools.verdict.world.held import (
    CLASSES,
    FUNCTIONS,
    HELD,
    Facade,
    Kind,
    Module,
)
from difftest.tools.verdict.world.instances import TEXT
from difftest.tools.verdict.world.loader import CandidateModules
from difftest.tools.verdict.world.nki_modules import _MEMBERS
from difftest.tools.verdict.world.refusal import STATE, Absent, OutsideLanguageError
from difftest.tools.verdict.world.texts import Opaque, is_own_class, is_own_function

NIGHTLY = settings.get_current_profile_name() == "nightly"
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
WAYS_OUT = (types.FrameType, types.CodeType, types.TracebackType, io.IOBase)
CANDIDATE = """
import abc, collections, contextlib, copy, dataclasses, enum, functools, itertools, json, logging
import math, operator, os, random, re, sys, time, types, typing, uuid, warnings
import collections.abc, numpy, ml_dtypes, numpy.typing
import nki, nki.isa, nki.language, nki.collectives, nki.typing, nki.language.tensor
import neuronxcc.nki, neuronxcc.nki.language, neuronxcc.nki.isa, neuronxcc.nki.typing
import neuronxcc.nki.compiler

@dataclasses.dataclass
class Plan:
    rows: int = 1

class Op(enum.Enum):
    PLUS = 1

Pair = collections.namedtuple("Pair", "x y")
plan, pair, op = Plan(), Pair(1, 2), Op.PLUS
cached = functools.lru_cache(lambda x: x)
array = numpy.zeros((2, 2))
scalars = [numpy.float32(1), numpy.dtype("float32"), 1, 1.5, "x", b"x", (1,), [1], {1: 1}, {1}]
more = [slice(1), range(3), iter([1]), (x for x in [1]), map(abs, [1]), object(), NotImplemented]
error = ValueError("x")
match_ = re.match("a(.)", "ab")
names = [nki.isa.engine, nki.isa.engine.tensor, nki.language.sbuf, neuronxcc.nki.language.sbuf]

@nki.jit
def add(a, b):
    import nki.isa as nisa
    import nki.language as nl
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    register = nisa.register_alloc(1)
    SEEN.extend([a, tile, tile[0:1], register, nl.ds(0, 1), nl.tile_size])
    nl.fori_loop(0, 1, lambda i: SEEN.append(i))
    PROBE()
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out

@neuronxcc.nki.jit
def old(a):
    import neuronxcc.nki.language as nl
    tile = nl.load(a)
    index = nl.arange(2)[:, None]
    SEEN.extend([a, tile, tile + 1.0, index, index < 1, nl.mgrid[0:2, 0:2], nl.tile_size])
    SEEN.extend([nl.affine_range(2), iter(nl.affine_range(2)), nl.par_dim(2), nl.float32])
    PROBE()
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out

SEEN = []
def PROBE(): ...
"""
SPECIAL = (
    *(
        "__class__",
        "__dict__",
        "__globals__",
        "__code__",
        "__self__",
        "__func__",
        "__wrapped__",
    ),
    *(
        "__closure__",
        "__base__",
        "__bases__",
        "__mro__",
        "__subclasses__",
        "__module__",
        "__name__",
    ),
    *(
        "__init__",
        "__new__",
        "__call__",
        "__getattribute__",
        "__reduce__",
        "__traceback__",
    ),
    *(
        "__members__",
        "__array_interface__",
        "__builtins__",
        "__loader__",
        "__spec__",
        "__doc__",
    ),
    *(
        "gi_frame",
        "mro",
        "func",
        "keywords",
        "tb_frame",
        "_storage",
        "_call",
        "_type",
        "_name",
    ),
)
"""Names that are asked for, wherever they are."""


def names_of(value):
    """The names to ask a value for: all that its class and it have, and those of the way out."""
    held = set(dir(type(value))) | set(SPECIAL)
    if not isinstance(value, (Absent, Opaque)):
        held |= set(getattr(value, "__dict__", ()))
    return sorted(name for name in held if isinstance(name, str))


def is_out(value):
    """Whether a value is out of the world."""
    kind = type(value)
    if isinstance(value, WAYS_OUT):
        return True
    if isinstance(value, types.ModuleType):
        return not isinstance(value, Module)
    if isinstance(value, type):
        return value not in CLASSES and not is_own_class(value)
    if kind is types.FunctionType:
        return not is_own_function(value) and id(value) not in FUNCTIONS
    return kind is np.ndarray and value.dtype.hasobject


def walk(roots, depth, arguments=()):
    """Return the ways out of the world, and how many values were seen."""
    known = {}
    out = []
    near = list(roots.items())
    for _ in range(depth):
        reached = []
        for way, value in near:
            if isinstance(value, PLAIN) or id(value) in known:
                continue
            known[id(value)] = value
            if is_out(value):
                out.append(way)
                continue
            reached += neighbours(way, value, arguments)
        near = reached
    out += [way for way, value in near if is_out(value)]
    return out, len(known)


def neighbours(way, value, arguments):
    """Yield what one guard gives from a value, with the way to it."""
    if isinstance(value, (Opaque, Absent, Kind)):
        return
    for name in names_of(value):
        found = attempt(lambda name=name: read(value, name))
        if found is not None:
            yield f"{way}.{name}", found
    if type(value) in (list, tuple):
        yield from ((f"{way}[{at}]", item) for at, item in enumerate(value))
    if type(value) is dict:
        yield from ((f"{way}[{key!r:.20}]", item) for key, item in value.items())
    for given in arguments if callable(value) or isinstance(value, Facade) else ():
        found = attempt(lambda given=given: call(value, *given))
        if found is not None:
            yield f"{way}({', '.join(type(one).__name__ for one in given)})", found


def attempt(ask):
    """Return what a guard gives; None where it refuses or Python raises."""
    try:
        return ask()
    except (Exception, OutsideLanguageError):
        return None


def reached(depth, arguments=()):
    """Return the ways out of all that a candidate holds at import and in its kernels."""
    file = SourceFile("candidate", "candidate.py", False, CANDIDATE.encode())
    ways = []
    counts = []
    ones = np.ones((2, 2), np.float32)
    with embedded():
        world = CandidateModules([file], (), lambda _: None, lambda tree, _: tree, {})
        space = vars(world.first())

        def probe():
            roots = {f"SEEN[{at}]": one for at, one in enumerate(space["SEEN"])}
            found, count = walk(roots, depth, arguments)
            ways.extend(found)
            counts.append(count)

        STATE.loading = False
        space["PROBE"] = Facade("PROBE", probe)
        own = {name: one for name, one in space.items() if "\N{MIDDLE DOT}" not in name}
        hidden = ("__builtins__", "SEEN", "PROBE")
        names = world._builtins.items()
        given = {key: one for key, one in names if key.isidentifier() and key[0] != "_"}
        roots = given | {key: one for key, one in own.items() if key not in hidden}
        found, count = walk(roots, depth, arguments)
        ways.extend(found)
        counts.append(count)
        launch(space["add"], [ones, ones])
        launch(space["old"], [ones])
    STATE.refused = None
    return ways, sum(counts)


def test_no_guard_leads_out_of_the_world():
    ways, count = reached(3 if NIGHTLY else 2)
    assert ways == [], "\n".join(ways)
    assert count > 1000


def test_no_call_leads_out_of_the_world():
    """Functions with arguments of the world: a nightly walk of all, a short one of each run."""
    values = (1, "x", (1, 2), [1], np.ones((2, 2)), np.float32)
    one = [(value,) for value in values]
    pairs = list(itertools.product(values, values)) if NIGHTLY else []
    ways, count = reached(2 if NIGHTLY else 1, [(), *one, *pairs])
    assert ways == [], "\n".join(ways)
    assert count > 100


def test_no_type_that_can_be_held_has_values_of_others():
    """Functions, classes and modules are held by identity, never by their type."""
    of_all = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
    assert not HELD & {*of_all, types.ModuleType, types.CodeType, types.FrameType}
    assert {kind for kind in HELD if issubclass(kind, type)} == {type(TEXT), Members}


def test_a_way_out_is_found():
    assert walk({"os": types.ModuleType("os")}, 1)[0] == ["os"]
    assert walk({"f": launch}, 1)[0] == ["f"]
    assert walk({"plan": [types.ModuleType("os")]}, 1)[0] == ["plan[0]"]


def test_members_are_of_the_objects_that_have_them():
    """A member of AWS's that ours does not have would be an AttributeError, and no refusal."""
    for kind, names in _MEMBERS.items():
        lacking = {name for name in names if not hasattr(kind, name)}
        has_own = not kind.__dictoffset__ and not hasattr(kind, "__getattr__")
        assert not lacking or not has_own or kind.__slots__, (kind, lacking)

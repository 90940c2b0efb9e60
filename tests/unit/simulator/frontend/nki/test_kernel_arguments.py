"""Arguments of kernels: each kind, by position, by keyword and left out."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

import numpy as np
import pytest

from difftest.simulator import KernelError
from difftest.simulator.arrays import SharedArgumentWarning
from difftest.simulator.entry.nki_kernel import jit, modules, simulate
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored as result_of

nt = modules()["nki.typing"]

A = np.arange(8, dtype=np.float32).reshape(2, 4)


def add_one(tensor):
    """Write to a tensor in HBM."""
    nl.store(tensor, nl.add(nl.load(tensor), 1.0))


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Plain:
    data: object
    scale: float = 2.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    data: object
    parts: tuple = ()


@dataclasses.dataclass(frozen=True)
class FrozenObject(nl.NKIObject):
    data: object
    mode: Mode = Mode.FAST


class Object(nl.NKIObject):
    data: object
    scale: float = 3.0


class Pair(NamedTuple):
    data: object
    scale: float


class Bare:
    """No dataclass and no NKIObject: it goes through as it is."""

    def __init__(self, scale):
        self.scale = scale


HOLDERS = {
    "an array": (lambda array: array, lambda got: got),
    "a tuple": (lambda array: (1, array), lambda got: got[1]),
    "a list": (lambda array: [array], lambda got: got[0]),
    "a dict": (lambda array: {"x": {"y": array}}, lambda got: got["x"]["y"]),
    "a named tuple": (lambda array: Pair(array, 2.0), lambda got: got.data),
    "a dataclass": (Plain, lambda got: got.data),
    "a frozen dataclass": (
        lambda array: Frozen(None, (array,)),
        lambda got: got.parts[0],
    ),
    "a frozen NKIObject": (FrozenObject, lambda got: got.data),
    "an NKIObject": (Object, lambda got: got.data),
    "a dataclass in a dict": (
        lambda array: {"x": Plain(array)},
        lambda got: got["x"].data,
    ),
}


@every("by_keyword", [False, True])
@every("name", HOLDERS)
def test_an_array_in_any_holder_is_a_tensor_and_is_written_in_place(name, by_keyword):
    hold, get = HOLDERS[name]

    @jit
    def kernel(holder, other=None):
        assert other is None
        tensor = get(holder)
        assert isinstance(tensor, nl.NkiTensor)
        assert nl.is_hbm(tensor.buffer)
        add_one(tensor)
        return result_of(tensor)

    array = A.copy()
    holder = hold(array)
    returned = kernel(holder=holder) if by_keyword else kernel(holder)
    np.testing.assert_array_equal(returned, A + 1)
    np.testing.assert_array_equal(array, A + 1)
    assert get(holder) is array  # the caller's object still has the caller's array


def test_a_read_only_array_is_read_and_not_written():
    array = A.copy()
    array.flags.writeable = False
    np.testing.assert_array_equal(simulate(result_of)(array), A)
    with pytest.raises(KernelError, match="a read-only array or a constant"):
        simulate(add_one)(array)


@every("make", [np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]])
def test_an_array_of_any_strides_is_written_in_place(make):
    array = make(A.copy())
    simulate(add_one)(array)
    np.testing.assert_array_equal(array, A + 1)


VALUES = [
    None,
    True,
    3,
    2.5,
    "text",
    Mode.EXACT,
    Level.LOW,
    (1, (2, None)),
    {"a": 1},
    Bare(2),
]


@every("value", [*VALUES, np.float32(2), nl.bfloat16, len, Mode])
def test_arguments_without_arrays_are_passed_unchanged(value):
    seen = []

    @jit
    def kernel(a, value, *rest, named, **more):
        seen.extend([value, *rest, named, more["x"]])
        return result_of(a)

    np.testing.assert_array_equal(kernel(A, value, value, named=value, x=value), A)
    assert all(one is value or one == value for one in seen)
    assert len(seen) == 4


def test_defaults_hold_where_an_argument_is_left_out_or_none():
    @jit
    def kernel(a, b=None, scale=2.0, *, mode=Mode.FAST):
        tile = nl.multiply(nl.load(a), scale)
        if b is not None:
            tile = nl.add(tile, nl.load(b))
        if mode == Mode.EXACT:
            tile = nl.add(tile, 100.0)
        return result_of_tile(tile)

    np.testing.assert_array_equal(kernel(A), A * 2)
    np.testing.assert_array_equal(kernel(A, None, 3.0), A * 3)
    np.testing.assert_array_equal(kernel(A, b=A), A * 3)
    np.testing.assert_array_equal(kernel(scale=1.0, a=A, mode=Mode.EXACT), A + 100)


def result_of_tile(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def annotated(
    a: nt.tensor[99, 1], b: nl.ndarray, n: str, c: nl.NkiTensor = None
) -> int:
    assert n == 3
    assert c is None
    return result_of(a), result_of(b)


def test_annotations_are_evaluated_and_never_enforced():
    first, second = simulate(annotated)(A, A + 1, 3)
    np.testing.assert_array_equal(first, A)
    np.testing.assert_array_equal(second, A + 1)
    namespace = {"nt": nt, "nl": nl}
    source = "def evaluated(a: nt.tensor[128, 512], b: nt.tensor, c: nl.float32 = 1): return a"
    exec(compile(source, __file__, "exec"), namespace)
    assert namespace["evaluated"].__annotations__["a"] is not None


def test_the_same_array_for_two_parameters_gives_the_last_one_its_writes():
    """Each parameter has its own tensor; written tensors are returned in their order."""

    @jit
    def kernel(a, b):
        nl.store(a, nl.full((2, 4), 1.0, nl.float32))
        nl.store(b, nl.full((2, 4), 2.0, nl.float32))

    array = A.copy()
    with pytest.warns(SharedArgumentWarning, match="two arguments that share memory"):
        kernel(array, array)
    assert (array == 2).all()


@every("first", [True, False])
def test_a_parameter_that_is_only_read_takes_no_writes_back(first):
    """One array for two parameters; the kernel writes one of them."""

    @jit
    def kernel(a, b):
        nl.store(a if first else b, nl.add(nl.load(b if first else a), 1.0))

    array = A.copy()
    kernel(array, array)
    assert (array == A + 1).all()

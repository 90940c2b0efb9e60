"""What kernels do that nothing lets them: a table. frontend/misuses.py has the dialects' own.

A row is data. What a call gets of its arguments is refused by the converters of those, and what an
instruction refuses is a rule of its record.
"""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.errors import KernelError, NkiError, ShapeError


class Misuse(NamedTuple):
    """A row: the rule, what a kernel did instead, and what to do about it.

    Called with what was received, it is the error, to be raised or noted.
    """

    rule: str
    happened: str
    remedy: str | None = None
    limit: str | None = None
    error: type[NkiError] = KernelError

    def __call__(self, received: str) -> NkiError:
        return self.error(
            self.rule,
            happened=self.happened,
            received=received,
            limit=self.limit,
            remedy=self.remedy,
        )


TENSOR_AS_CONDITION = Misuse(
    "control flow cannot depend on a tensor's value",
    "a tensor was used as a condition",
    "compare with 'is None' if you meant that; else use a mask or nl.where",
)
TILE_AS_ARRAY = Misuse(
    "a tile is not an array: its values exist when the kernel runs, not when it is traced",
    "a tile was used as a NumPy array",
    "use the functions of nki.language; return a tensor in HBM to see its values",
)
LENGTH_OF_SCALAR = Misuse(
    "a tile of no dimension has no length",
    "len() was asked of a tile that has no dimension",
    error=ShapeError,
)
BLOCKS_AS_TILE = Misuse(
    "the first dimension of a tile is its partition dimension",
    "a tensor with block dimensions was used as a tile",
    "index the leading (block) dimensions with integers first",
    error=ShapeError,
)
RESHAPE_OF_SLICE = Misuse(
    "reshape of a slice is a view, so its elements must be adjacent in memory",
    "reshape met elements that are not adjacent in memory",
    "reshape before slicing or permuting, or copy the slice first",
    error=ShapeError,
)
ADDRESS_OF_BLOCKS = Misuse(
    "a tensor with an address has its partitions first",
    "a tensor with block dimensions was given an address",
    error=ShapeError,
)
NO_KERNEL = Misuse(
    "NKI functions run inside a kernel",
    "an NKI function was called with no kernel running",
    "call the kernel through nki.simulate_kernel(kernel, ...) or decorate it with @nki.jit",
)
USE_AFTER_LOOP = Misuse(
    "what the body of a loop on the device makes is not used after the loop",
    "a tensor was used after the loop in whose body it was made",
    "make it before the loop",
)
OTHER_SHARED_TENSOR = Misuse(
    "every instance of an SPMD grid creates the same shared_hbm tensors",
    "two instances of a grid created a shared_hbm tensor differently",
    "create shared_hbm tensors at the top of the kernel, with one shape",
)
LAUNCH_IN_KERNEL = Misuse(
    "a kernel is launched from outside kernels",
    "a kernel launched another one",
    "call the other kernel directly, without a grid",
)
RETURN_OF_NO_TENSOR = Misuse(
    "a kernel returns tensors",
    "the kernel returned something that is no tensor",
    "return the tensors created with buffer=nl.shared_hbm",
)
EMPTY_ARGUMENT = Misuse(
    "a kernel's tensors have at least one element",
    "an argument has no elements",
    error=ShapeError,
)
READ_ONLY_ARGUMENT = Misuse(
    "an nt.mutable_tensor is written in place",
    "a read-only array was given for an nt.mutable_tensor",
    "pass a copy: array.copy()",
)

"""Rules of the current dialect that a migrated file may still break, each with its remedy."""

from __future__ import annotations

Rule = tuple[str, str]


class NotMechanicalError(Exception):
    """A statement that cannot be rewritten.

    Attributes
    ----------
    rule : the broken rule and its remedy.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__(*rule)
        self.rule = rule


MASK = (
    "instructions do not take a mask",
    "slice the operands to the elements that the mask selects",
)
NOT_AFFINE = (
    "a slice has a start, a size and a step",
    "write the access pattern with `.ap(...)`, or copy in pieces",
)
NEW_AXIS = ("an index cannot add a dimension", "use tensor.expand_dim(dim)")
LOST = ("this index depends on the path to this line", "write the slices for each case")
OPERATOR = (
    "tiles do not support arithmetic operators",
    "write the instruction, with its dst",
)
BROADCAST = (
    "tiles do not broadcast across partitions or in more than one dimension",
    "copy the smaller tile to the shape of the larger tile with nl.broadcast_to",
)
TILE_OR_NUMBER = (
    "tensor_tensor takes tiles, tensor_scalar takes numbers, and the operand's type is unknown",
    "write the matching instruction, with its dst",
)
PLATFORM = (
    "nki.jit does not accept platform_target",
    "leave it out, and set NEURON_PLATFORM_TARGET_OVERRIDE in the environment of the kernel",
)
SUM = (
    "only a PSUM tile from nl.zeros(..., buffer=nl.psum) in the same function certainly "
    "accumulates",
    "write nisa.nc_matmul(dst=..., accumulate=...), or add with nisa.tensor_tensor",
)
INSIDE = (
    "an instruction does not return a tensor, and this call is part of an expression",
    "assign its result to a name on a separate line",
)
SHAPE = ("the kernel must allocate the result", "allocate it, and pass it as dst=")
UNKNOWN_CALL = (
    "this instruction writes to dst",
    "allocate its result, and pass it as dst=",
)
TARGET = (
    "this may assign to a tile or to a list",
    "pass the tile as dst= of the instruction",
)
CAST = (
    "an instruction rounds once, to the dtype of dst",
    "allocate an intermediate tile of that dtype, or leave dtype out",
)
SEVERAL = ("an instruction has one dst", "assign each name on a separate line")
OTHERS = (
    "a kernel of the current dialect can only call functions of that dialect",
    "if this module contains NKI code, migrate it too and import the new module",
)
IMPORT = (
    "only imports of whole modules under a name are supported",
    "import the module: import nki.isa as nisa",
)

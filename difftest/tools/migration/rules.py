"""Rules of the current dialect that a migrated file may still break, each with its remedy."""

from __future__ import annotations

Rule = tuple[str, str]


class NotMechanicalError(Exception):
    """A statement that cannot be rewritten. Its arguments are the broken rule and the remedy."""


MASK = ("instructions have no mask", "slice the operands to what the mask leaves")
NOT_AFFINE = (
    "a slice has a start, a size and a step",
    "write the access pattern with `.ap(...)`, or copy in pieces",
)
NEW_AXIS = ("an index makes no new dimension", "use tensor.expand_dim(dim)")
LOST = ("this index is not the same on every way to this line", "write the slices of each case")
OPERATOR = ("tiles have no arithmetic operators", "write the instruction, with its dst")
BROADCAST = (
    "tiles do not broadcast across partitions or in more than one dimension",
    "copy the smaller one to the larger one's shape with nl.broadcast_to",
)
TILE_OR_NUMBER = (
    "tensor_tensor takes tiles and tensor_scalar numbers, and which this is is not to be seen",
    "write the instruction that fits, with its dst",
)
PLATFORM = (
    "nki.jit takes no platform_target",
    "leave it out, and set NEURON_PLATFORM_TARGET_OVERRIDE where the kernel runs",
)
SUM = (
    "only a PSUM tile that starts with nl.zeros(..., buffer=nl.psum) in the same function is "
    "known to accumulate",
    "write nisa.nc_matmul(dst=..., accumulate=...), or add with nisa.tensor_tensor",
)
INSIDE = (
    "an instruction returns nothing, and this call stands inside of an expression",
    "give its result a name, on a line of its own",
)
SHAPE = ("a result is allocated by the kernel", "allocate it, and name it as dst=")
UNKNOWN_CALL = ("this instruction writes to dst", "allocate its result, and name it as dst=")
TARGET = (
    "whether this assigns into a tile or into a list is not to be seen here",
    "name the tile as dst= of the instruction",
)
CAST = (
    "an instruction rounds once, to the dtype of dst",
    "allocate a tile of that dtype in between, or leave dtype out",
)
SEVERAL = ("an instruction has one dst", "give each name a line of its own")
OTHERS = (
    "a kernel of today calls today's functions alone",
    "migrate this module too if there is NKI code in it, and import the new one",
)
IMPORT = (
    "only imports of whole modules under a name are followed",
    "import the module: import nki.isa as nisa",
)

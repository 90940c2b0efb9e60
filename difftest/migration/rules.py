"""What changed from the classic dialect to today's, as the rewriting applies it.

Sources: the signatures of both dialects in AWS's documentation (the classic ones at v2.26.0,
today's at v2.32.0) and its migration guides.
"""

from __future__ import annotations

from typing import NamedTuple


class Calling(NamedTuple):
    """How a classic instruction that returns its result is called.

    Attributes
    ----------
    parameters : the positional ones, in the order of the classic signature.
    first : the operand whose dtype the result has.
    shape, dtype, buffer : of the result, where it is allocated; ``{name}`` stands for an operand.
        No shape: only a call whose result goes to an existing tile is mechanical.
    name : of the instruction, if it is no ``nisa`` instruction of the same name.
    """

    parameters: tuple[str, ...]
    first: str
    shape: str | None
    dtype: str
    buffer: str = "sbuf"
    name: str | None = None


def _like(first: str, *parameters: str, name: str | None = None) -> Calling:
    """The result has the shape and dtype of the operand ``first``."""
    return Calling(parameters, first, f"{{{first}}}.shape", f"{{{first}}}.dtype", name=name)


INSTRUCTIONS = {
    "nisa.tensor_tensor": _like("data1", "data1", "data2", "op"),
    "nisa.tensor_scalar": _like(
        "data", "data", "op0", "operand0", "reverse0", "op1", "operand1", "reverse1"
    ),
    "nisa.scalar_tensor_tensor": _like("data"),
    "nisa.tensor_tensor_scan": _like(
        "data0", "data0", "data1", "initial", "op0", "op1", "reverse0", "reverse1"
    ),
    "nisa.tensor_copy": _like("src", "src"),
    "nisa.reciprocal": _like("data", "data"),
    "nisa.activation": _like("data", "op", "data"),
    "nl.copy": _like("src", "src", name="nisa.tensor_copy"),
    "nl.load": _like("src", "src", name="nisa.dma_copy"),
    "nisa.tensor_reduce": Calling(("op", "data", "axis"), "data", None, "{data}.dtype"),
    "nisa.nc_transpose": Calling(
        ("data",), "data", "({data}.shape[1], {data}.shape[0])", "{data}.dtype", "psum"
    ),
    "nisa.nc_matmul": Calling(
        ("stationary", "moving"),
        "stationary",
        "({stationary}.shape[1], *{moving}.shape[1:])",
        "{nl}.float32",
        "psum",
    ),
}
"""Classic functions that return a tile, where today's instruction writes to ``dst``."""

STORE = ("dst", "value")
"""The positional parameters of ``nl.store``."""
MATMUL = "nisa.nc_matmul"
ROUNDED = ("dtype", "mask")
"""Keywords of classic instructions that today's do not have."""

NO_TILE = (
    *("nl.mgrid", "nl.arange", "nl.ds", "nl.par_dim", "nl.program_id", "nl.num_programs"),
    *("nl.program_ndim", "nisa.get_nc_version"),
)
"""Functions whose result is no tile."""
RANGES = ("nl.affine_range", "nl.sequential_range", "nl.static_range")
"""Loops that are ``range`` today."""
NUMPY_OPS = ("op", "op0", "op1")
"""Parameters that the classic dialect gives NumPy's functions, too."""

GONE = {
    "nl.mgrid": ("there are no index grids", "index with slices, `.ap(...)` or `.permute(...)`"),
    "nl.arange": ("there are no index tensors", "index with slices or `.ap(...)`"),
    "nl.loop_reduce": ("there is no loop_reduce", "accumulate in PSUM, or add in a loop"),
    "nl.atomic_rmw": ("there is no atomic_rmw", "use nisa.dma_compute"),
    "nl.par_dim": (
        "the first dimension of a tile is its partitions; there are no block dimensions",
        "leave par_dim out, and keep blocks in a list or behind the partitions",
    ),
    "nki.compiler": ("nki.compiler is gone", "leave it out"),
    "nki.baremetal": ("nki.baremetal is gone", "use @nki.jit"),
    "nki.benchmark": ("nki.benchmark is gone", "use @nki.jit, and the profiler of the SDK"),
    "nki.profile": ("nki.profile is gone", "use @nki.jit, and the profiler of the SDK"),
    "nki.simulate_kernel": ("simulate_kernel is gone", "use nki.simulate"),
}
"""Names without a mechanical successor: the rule and the remedy."""

MASK = ("instructions have no mask", "slice the operands to what the mask leaves")
OPERATOR = ("tiles have no arithmetic operators", "write the instruction, with its dst")
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
ITEMSIZE = ("tensors have no itemsize", "compare dtype, or take the size as an argument")
SEVERAL = ("an instruction has one dst", "give each name a line of its own")
OTHERS = (
    "a kernel of today calls today's functions alone",
    "migrate this module too if there is NKI code in it, and import the new one",
)
IMPORT = (
    "only imports of whole modules under a name are followed",
    "import the module: import nki.isa as nisa",
)

"""How classic functions are called, and what their results are, as the rewriting needs it.

Sources: the signatures of both dialects in AWS's documentation (the classic ones at v2.26.0,
today's at v2.32.0) and its migration guides.
"""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.instructions.alu import NKI_OPS
from difftest.simulator.instructions.functions import ACTIVATIONS


class Calling(NamedTuple):
    """How a classic instruction that returns its result is called.

    Attributes
    ----------
    parameters : the positional ones, in the order of the classic signature.
    first : the operand whose dtype the result has, if ``dtype`` is None.
    shape : of the result, where it is allocated: like ``first``, reduced, or by its ``sizes``.
    sizes : of the result: an operand and a dimension of it; no operand, and a number.
    dtype, buffer : of the result.
    name : of the instruction, if it is no ``nisa`` instruction of the same name.
    """

    parameters: tuple[str, ...]
    first: str
    shape: str
    sizes: tuple[tuple[str, int], ...] = ()
    dtype: str = ""
    buffer: str = "sbuf"
    name: str | None = None


LIKE, REDUCED, SIZED, PRODUCT = "like", "reduced", "sized", "product"


def _like(first: str, *parameters: str, name: str | None = None) -> Calling:
    """The result has the shape and dtype of the operand ``first``."""
    return Calling(parameters, first, LIKE, name=name)


def _columns(count: int, first: str, *parameters: str, dtype: str = "") -> Calling:
    """The result has ``count`` elements a partition."""
    return Calling(parameters, first, SIZED, ((first, 0), ("", count)), dtype)


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
    "nisa.activation_reduce": _like("data", "op", "data"),
    "nisa.dropout": _like("data", "data", "prob"),
    "nisa.nc_match_replace8": _like("data"),
    "nl.copy": _like("src", "src", name="nisa.tensor_copy"),
    "nl.load": _like("src", "src", name="nisa.dma_copy"),
    "nisa.tensor_reduce": Calling(("op", "data", "axis"), "data", REDUCED),
    "nisa.max8": _columns(8, "src"),
    "nisa.nc_find_index8": _columns(8, "data", dtype="nl.uint32"),
    "nisa.bn_stats": _columns(6, "data", "data"),
    "nisa.bn_aggr": _columns(2, "data", "data"),
    "nisa.memset": Calling(("shape", "value", "dtype"), "value", SIZED),
    "nisa.nc_transpose": Calling(
        ("data",), "data", SIZED, (("data", 1), ("data", 0)), buffer="psum"
    ),
    "nisa.nc_matmul": Calling(
        ("stationary", "moving"),
        "stationary",
        PRODUCT,
        (("stationary", 1),),
        "nl.float32",
        "psum",
    ),
}
"""Classic functions that return a tile, where today's instruction writes to ``dst``."""

STORE = ("dst", "value")
"""The positional parameters of ``nl.store``."""
MATMUL = "nisa.nc_matmul"
DROPPED = ("dtype", "mask")
"""Keywords of classic functions that today's instructions do not have."""

OPERATORS = {
    "Add": "add",
    "Sub": "subtract",
    "Mult": "multiply",
    "Div": "divide",
    "BitAnd": "bitwise_and",
    "BitOr": "bitwise_or",
    "BitXor": "bitwise_xor",
}
"""Python's operators between tiles, by their syntax nodes, as functions of ``nl``."""
SCALED = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
"""Functions of two operands of which one may be a column, for ``tensor_scalar``."""
BINARY = {f"nl.{name}" for name, op in NKI_OPS.items() if not op.unary}
"""``nl`` functions of two operands."""
UNARY = {f"nl.{name}" for name in ACTIVATIONS if name not in ("copy", "reciprocal")}
"""``nl`` functions of one operand that are an ``activation``."""
ELEMENTWISE = BINARY | UNARY | {f"nl.{name}" for name in ("copy", "reciprocal", "negative", "abs")}
"""``nl`` functions whose result has the shape of their operand."""
REDUCTIONS = {
    "nl.sum": "add",
    "nl.prod": "multiply",
    "nl.max": "maximum",
    "nl.min": "minimum",
    "nl.mean": None,
    "nl.var": None,
    "nl.all": None,
}
"""``nl`` functions along axes, and the operator of the ``tensor_reduce`` that each is."""
MAKERS = {
    "nl.ndarray": ("shape", "dtype", "buffer"),
    "nl.zeros": ("shape", "dtype", "buffer"),
    "nl.ones": ("shape", "dtype", "buffer"),
    "nl.full": ("shape", "fill_value", "dtype", "buffer"),
}
"""``nl`` functions that make a tensor, and their parameters."""

NO_TILE = (
    *("nl.mgrid", "nl.arange", "nl.ds", "nl.par_dim", "nl.program_id", "nl.num_programs"),
    *("nl.program_ndim", "nisa.get_nc_version"),
)
"""Functions whose result is no tile."""
RANGES = ("nl.affine_range", "nl.sequential_range", "nl.static_range")
"""Loops that are ``range`` today."""
NUMPY_OPS = ("op", "op0", "op1", "reduce_op")
"""Parameters that the classic dialect gives NumPy's functions, too."""
NAMES = {"max": "maximum", "min": "minimum"}
"""Operators of the classic dialect under their names of today."""
VECTORS = ("operand0", "operand1")
"""Operands of ``tensor_scalar`` that are numbers, or columns in float32."""
BITWISE = ("and", "or", "xor", "shift", "invert")
"""What the names of operators on bits have in them: these take a column of any dtype."""

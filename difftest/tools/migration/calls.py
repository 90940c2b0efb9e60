"""Tables of classic functions: their operands and the shapes, dtypes and buffers of results.

Sources: the signatures of both dialects, and AWS's migration guides (v2.26.0, v2.32.0).
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import NamedTuple

from difftest.simulator.frontend.classic import isa, language
from difftest.simulator.instructions.alu import ACTIVATIONS, NKI_OPS

LIKE = "like"
REDUCED = "reduced"
SIZED = "sized"
PRODUCT = "product"


class CallInfo(NamedTuple):
    """The result of a classic instruction.

    Attributes
    ----------
    first : the operand that gives the result its dtype if ``dtype`` is empty.
    shape : how the result's shape is computed: like ``first``, reduced, or from ``sizes``.
    sizes : pairs of an operand and its dimension, or of an empty string and a number.
    dtype, buffer : the result's dtype and memory.
    name : the instruction, if it is not the ``nisa`` instruction of the same name.
    """

    first: str
    shape: str = LIKE
    sizes: tuple[tuple[str, int], ...] = ()
    dtype: str = ""
    buffer: str = "sbuf"
    name: str | None = None


INSTRUCTIONS = {
    "nisa.tensor_tensor": CallInfo("data1"),
    "nisa.tensor_scalar": CallInfo("data"),
    "nisa.scalar_tensor_tensor": CallInfo("data"),
    "nisa.tensor_tensor_scan": CallInfo("data0"),
    "nisa.tensor_copy": CallInfo("src"),
    "nisa.reciprocal": CallInfo("data"),
    "nisa.activation": CallInfo("data"),
    "nisa.activation_reduce": CallInfo("data"),
    "nisa.dropout": CallInfo("data"),
    "nisa.nc_match_replace8": CallInfo("data"),
    "nl.copy": CallInfo("src", name="nisa.tensor_copy"),
    "nl.load": CallInfo("src", name="nisa.dma_copy"),
    "nisa.tensor_reduce": CallInfo("data", REDUCED),
    "nisa.max8": CallInfo("src", SIZED, (("src", 0), ("", 8))),
    "nisa.nc_find_index8": CallInfo("data", SIZED, (("data", 0), ("", 8)), "nl.uint32"),
    "nisa.bn_stats": CallInfo("data", SIZED, (("data", 0), ("", 6))),
    "nisa.bn_aggr": CallInfo("data", SIZED, (("data", 0), ("", 2))),
    "nisa.memset": CallInfo("value", SIZED),
    "nisa.nc_transpose": CallInfo(
        "data", SIZED, (("data", 1), ("data", 0)), buffer="psum"
    ),
    "nisa.nc_matmul": CallInfo(
        "stationary", PRODUCT, (("stationary", 1),), "nl.float32", "psum"
    ),
}
"""Classic functions that return a tile. Instructions of the current dialect write to ``dst``."""


@cache
def positional(name: str) -> tuple[str, ...]:
    """Return the positional parameters of a classic function; empty for an unknown name.

    An example of a name is ``nl.load``.
    """
    module, _, function = name.partition(".")
    callee = getattr({"nl": language, "nisa": isa}[module], function, None)
    parameters = inspect.signature(callee).parameters.values() if callee else ()
    return tuple(
        item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD
    )


MATMUL = "nisa.nc_matmul"

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
"""Binary functions that ``tensor_scalar`` applies to a tile and a column."""
BINARY = {f"nl.{name}" for name, op in NKI_OPS.items() if not op.unary}
"""``nl`` functions of two operands."""
UNARY = {f"nl.{name}" for name in ACTIVATIONS if name not in ("copy", "reciprocal")}
"""``nl`` functions of one operand that are an ``activation``."""
ELEMENTWISE = (
    BINARY
    | UNARY
    | {f"nl.{name}" for name in ("copy", "reciprocal", "negative", "abs")}
)
"""``nl`` functions whose result has the shape of their operand."""
REDUCTIONS = {
    "nl.sum": "add",
    "nl.prod": "multiply",
    "nl.max": "maximum",
    "nl.min": "minimum",
    **dict.fromkeys(("nl.mean", "nl.var", "nl.all")),
}
"""``nl`` reductions along axes, with the operator of the equivalent ``tensor_reduce``."""
MAKERS = ("nl.ndarray", "nl.zeros", "nl.ones", "nl.full")
"""``nl`` functions that make a tensor."""
NO_TILE = (
    "nl.mgrid",
    "nl.arange",
    "nl.ds",
    "nl.par_dim",
    "nl.program_id",
    "nl.num_programs",
    "nl.program_ndim",
    "nisa.get_nc_version",
)
"""Functions that do not return a tile."""
RANGES = ("nl.affine_range", "nl.sequential_range", "nl.static_range")
"""Loops that become ``range`` in the current dialect."""
NUMPY_OPS = ("op", "op0", "op1", "reduce_op")
"""Parameters that also take NumPy functions in the classic dialect."""
NAMES = {"max": "maximum", "min": "minimum"}
"""Names of operators in the current dialect, by their classic names."""
VECTORS = ("operand0", "operand1")
"""Operands of ``tensor_scalar`` that are numbers, or columns in float32."""
BITWISE = ("and", "or", "xor", "shift", "invert")
"""Parts of the names of bitwise operators, which take a column of any dtype."""

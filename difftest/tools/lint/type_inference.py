"""Infer the types of a kernel's expressions: tiles, indices, masks, numbers or NKI names.

The type of a name follows from its bindings. If they disagree or cannot be interpreted, the type
is unknown, and rules that depend on it report no finding.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.tools.api.documented import CLASSIC, TODAY, documented_names
from difftest.tools.syntax import (
    indices_of,
    is_none,
    keyword_of,
    literal_of,
    names_in,
)

if TYPE_CHECKING:
    from difftest.tools.lint.source import Source


class ValueType(Enum):
    """The type of an expression. In an operation, the type that is listed first prevails."""

    TILE = "a tile"
    MASK = "a mask"
    INDEX = "an index"
    LINE = "an index of one dimension"
    TURN = "the index of a loop or a program"
    NUMBER = "a number"
    TENSOR = "a tensor in HBM"
    GRID = "an nl.mgrid"


MAKERS = ("nl.ndarray", "nl.zeros", "nl.ones", "nl.full", "nl.empty", "nl.zeros_like")
TRACED_ONCE = ("nl.affine_range", "nl.sequential_range")
"""Loops of the classic dialect that are not unrolled. Source: their stubs at v2.26.0."""
_IN_HBM = {"nl.hbm", "nl.private_hbm", "nl.shared_hbm"}
_NO_TILES = (
    "nl.ds",
    "nl.par_dim",
    "nl.num_programs",
    "nl.program_ndim",
    "nl.store",
    "nl.device_print",
    "nl.affine_range",
    "nl.sequential_range",
    "nl.static_range",
    "nl.dynamic_range",
    "nl.fori_loop",
    "nl.while_loop",
    "nl.no_reorder",
    "nl.nc",
    "nl.spmd_dim",
    "nl.loop_reduce",
    "nisa.register_alloc",
    "nisa.get_nc_version",
)
"""NKI functions that do not return a new tile. ``nl.loop_reduce`` adds to its target."""
_TILE_SECTIONS = (
    "Memory operations",
    "Creation operations",
    "Tensor operations",
    "Math operations",
    "Bitwise operations",
    "Logical operations",
    "Comparison operations",
    "Reduction operations",
    "Tensor manipulation operations",
    "Indexing operations",
    "Indexing/Searching operations",
    "Collective communication operations",
    "NKI ISA",
    "Activation and Backpropagation functions",
    "Normalization and Regularization functions",
)
"""Sections of AWS's lists of names whose functions return tiles, except ``_NO_TILES``."""
_TILE_METHODS = (
    "astype",
    "broadcast",
    "broadcast_to",
    "expand_dim",
    "expand_dims",
    "squeeze_dim",
    "reshape",
    "reshape_dim",
    "flatten_dims",
    "permute",
    "rearrange",
    "view",
    "slice",
    "select",
    "vector_select",
    "ap",
)
"""Methods of tensors that return tensors, by the documented classes of both dialects."""
_LOOP_VARIABLES = {
    "nl.affine_range": ValueType.TURN,
    "nl.sequential_range": ValueType.TURN,
    "range": ValueType.TURN,
    "nl.static_range": ValueType.NUMBER,
}
"""The type of a loop's variable, by the function that makes the loop's range."""
_INDICES = {"nl.arange": ValueType.LINE, "nl.program_id": ValueType.TURN}
_OF_NUMBERS = ("len", "int", "float", "min", "max", "abs", "round", "sum")
_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


@cache
def _tile_makers() -> frozenset[str]:
    """Return the documented functions of ``nl`` and ``nisa`` that return a tile.

    A function outside of the lists, such as ``nl.constants.sizeinbytes``, may return anything.
    """
    modules = {"nki.language": "nl", "nki.isa": "nisa"}
    makers = set(MAKERS)
    for entry in documented_names(CLASSIC) + documented_names(TODAY):
        if entry.module in modules and entry.section in _TILE_SECTIONS:
            makers.add(f"{modules[entry.module]}.{entry.name}")
    return frozenset(makers.difference(_NO_TILES))


class Binding(NamedTuple):
    """A binding of a name: the statement or parameter, and the value or the loop's iterable."""

    by: ast.AST
    value: ast.expr | None

    @property
    def end(self) -> tuple[int, int]:
        """The line and column from which the name has the value."""
        last = self.by.target if isinstance(self.by, ast.For) else self.by
        return getattr(last, "end_lineno", 0), getattr(last, "end_col_offset", 0)


class TypeInference:
    """The inferred types of a function's expressions."""

    def __init__(self, source: Source, function: ast.AST) -> None:
        self._source = source
        self._name_of = source.names.of
        self._known: dict[ast.AST, ValueType | None] = {}
        self.bound: dict[str, list[Binding]] = {}
        """The bindings of each name, in no particular order."""
        for node in ast.walk(function):
            for target, value in _targets(node):
                self._bind(node, target, value)

    def of(self, node: ast.AST) -> ValueType | None:
        """Return the type of an expression, or None if it is unknown."""
        if node not in self._known:
            # This ends the recursion for names that refer to themselves.
            self._known[node] = ValueType.NUMBER
            read = _READERS.get(type(node))
            self._known[node] = read(self, node) if read else None
        return self._known[node]

    def value(self, node: ast.AST) -> ast.AST:
        """Return the expression that is a name's only value, or else the node itself."""
        while isinstance(node, ast.Name):
            reaching = self._reaching(node)
            if len(reaching) != 1 or reaching[0].value is None:
                break
            node = reaching[0].value
        return node

    def bound_in(self, block: ast.AST) -> dict[str, list[Binding]]:
        """Return the bindings that the statements of a block make, by name."""
        inside: dict[str, list[Binding]] = {}
        for name, bindings in self.bound.items():
            for item in bindings:
                if item.by is block or block in self._source.around(item.by):
                    inside.setdefault(name, []).append(item)
        return inside

    def origins(self, node: ast.AST) -> set[str]:
        """Return the names that an expression is computed from, directly or indirectly."""
        names: set[str] = set()
        left: list[ast.AST] = [node]
        while left:
            read = names_in(left.pop())
            for name in read - names:
                for binding in self.bound.get(name, ()):
                    if binding.value is not None:
                        left.append(binding.value)
            names |= read
        return names

    def _of_name(self, node: ast.Name) -> ValueType | None:
        kinds = set(map(self._of_binding, self._reaching(node)))
        return kinds.pop() if len(kinds) == 1 else None

    def _of_attribute(self, node: ast.Attribute) -> ValueType | None:
        if self.of(node.value) is ValueType.GRID:
            return ValueType.INDEX
        is_size = node.attr in ("shape", "ndim", "size")
        if is_size or "nl.tile_size" in self._name_of(node):
            return ValueType.NUMBER
        return None

    def _of_comparison(self, node: ast.Compare) -> ValueType | None:
        sides = [node.left, *node.comparators]
        is_identity = any(isinstance(op, _IDENTITY) for op in node.ops)
        if is_identity or any(map(_is_no_number, sides)):
            return ValueType.NUMBER
        common = self._together(sides)
        return ValueType.MASK if common in (ValueType.INDEX, ValueType.LINE) else common

    def _of_binding(self, binding: Binding) -> ValueType | None:
        if isinstance(binding.by, ast.For) and isinstance(binding.value, ast.Call):
            called = self._name_of(binding.value.func) or ast.unparse(
                binding.value.func
            )
            return _LOOP_VARIABLES.get(called)
        return self.of(binding.value) if binding.value else None

    def _of_call(self, node: ast.Call) -> ValueType | None:
        name = self._name_of(node.func)
        if name in MAKERS:
            return self._of_allocation(node)
        if name in _INDICES:
            return _INDICES[name]
        if name:
            return ValueType.TILE if name in _tile_makers() else None
        if isinstance(node.func, ast.Attribute):
            return self._of_method(node.func)
        if getattr(node.func, "id", "") not in _OF_NUMBERS:
            return None
        is_index = self._together(node.args) is ValueType.TURN
        return ValueType.TURN if is_index else ValueType.NUMBER

    def _of_allocation(self, node: ast.Call) -> ValueType | None:
        """Return the type of a new tensor, which its buffer decides."""
        buffers = [self.value(value) for value in node.args[2:]]
        named = keyword_of(node, "buffer")
        if named is not None:
            buffers.append(self.value(named))
        if _IN_HBM.intersection(map(self._name_of, buffers)):
            return ValueType.TENSOR
        if any(isinstance(buffer, ast.Name) for buffer in buffers):
            return None
        return ValueType.TILE

    def _of_method(self, method: ast.Attribute) -> ValueType | None:
        """Return the type of a view: the type of the tensor whose method makes it."""
        receiver = self.of(method.value) if method.attr in _TILE_METHODS else None
        return receiver if receiver in (ValueType.TILE, ValueType.TENSOR) else None

    def _of_part(self, node: ast.Subscript) -> ValueType | None:
        if self._name_of(node.value) in ("nl.mgrid", "nl.ogrid"):
            return ValueType.GRID
        whole = self.of(node.value)
        if whole is ValueType.LINE and any(map(is_none, indices_of(node))):
            return ValueType.INDEX  # [:, None]
        return ValueType.INDEX if whole is ValueType.GRID else whole

    def _together(self, nodes: Iterable[ast.expr]) -> ValueType | None:
        """Return the type of an operation on expressions."""
        kinds = {self.of(node) for node in nodes}
        first = next((kind for kind in ValueType if kind in kinds), None)
        is_open = None in kinds and first in (ValueType.LINE, ValueType.NUMBER)
        return None if is_open or {ValueType.TENSOR, ValueType.GRID} & kinds else first

    def _bind(self, node: ast.AST, target: ast.AST, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = getattr(value, "elts", ())
            for number, element in enumerate(target.elts):
                part: ast.expr | None = None
                if len(parts) == len(target.elts):
                    part = parts[number]
                elif value is not None:
                    part = ast.Subscript(value, ast.Constant(number), ast.Load())
                self._bind(node, element, part)
        elif name := getattr(target, "id", getattr(target, "arg", None)):
            self.bound.setdefault(name, []).append(Binding(node, value))

    def _reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that may reach a use of a name."""
        bindings = self.bound.get(name.id)
        constant = self._source.constants.get(name.id)
        if bindings is None:
            return [] if constant is None else [Binding(name, constant)]
        use = (name.lineno, name.col_offset)
        above = (binding for binding in bindings if binding.end <= use)
        last = max(above, key=lambda binding: binding.end, default=None)
        around = set(self._source.around(name))
        if last is None or not self._is_before(last.by, around):
            return bindings
        # An earlier iteration of a loop around the use alone may bind the name, too.
        repeated = around.difference(self._source.around(last.by), [last.by])
        return [last, *(item for item in bindings if self._is_in_loop(item, repeated))]

    def _is_in_loop(self, binding: Binding, blocks: Collection[ast.AST]) -> bool:
        """Return whether one of these blocks is a loop around a binding."""
        around = self._source.around(binding.by)
        return any(
            isinstance(it, (ast.For, ast.While)) and it in blocks for it in around
        )

    def _is_before(self, statement: ast.AST, around: set[ast.AST]) -> bool:
        """Return whether a statement always runs before the code inside ``around``."""
        if statement in around:
            return True
        parent = self._source.parents.get(statement)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return not around.isdisjoint(block)
        return False


_READERS: Mapping[type[ast.AST], Callable[[TypeInference, Any], ValueType | None]] = {
    ast.Constant: lambda types, node: _of_literal(node),
    ast.Name: TypeInference._of_name,
    ast.Call: TypeInference._of_call,
    ast.Subscript: TypeInference._of_part,
    ast.Attribute: TypeInference._of_attribute,
    ast.Compare: TypeInference._of_comparison,
    ast.BinOp: lambda types, node: types._together([node.left, node.right]),
    ast.IfExp: lambda types, node: types._together([node.body, node.orelse]),
    ast.UnaryOp: lambda types, node: types._together([node.operand]),
    ast.BoolOp: lambda types, node: types._together(node.values),
}
"""The inference of each kind of expression. Other kinds have an unknown type."""


def _of_literal(node: ast.Constant) -> ValueType | None:
    return ValueType.NUMBER if isinstance(node.value, (int, float)) else None


def _is_no_number(node: ast.expr) -> bool:
    """Return whether an expression is None or a string, which only Python itself compares."""
    return is_none(node) or isinstance(literal_of(node), str)


def targets_of(node: ast.Assign | ast.AugAssign) -> Iterator[ast.expr]:
    """Yield the targets of an assignment, including the items of tuples and lists."""
    waiting: list[ast.expr] = []
    waiting += reversed(node.targets) if isinstance(node, ast.Assign) else [node.target]
    while waiting:
        target = waiting.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            waiting += reversed(target.elts)
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def _targets(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """Yield each target that a node binds, with its value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign):
        yield node.target, ast.BinOp(node.target, node.op, node.value)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.arg):
        yield node, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, None

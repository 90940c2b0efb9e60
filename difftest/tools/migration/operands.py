"""Write operands of instructions: masked, in the required memory and dtype."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import NamedTuple

from difftest.simulator.frontend.nki import language
from difftest.tools.migration import views
from difftest.tools.migration.calls import NAMES
from difftest.tools.migration.indices import (
    AXES,
    EVERYTHING,
    ONE,
    MaskBox,
    Term,
    box,
)
from difftest.tools.migration.rules import MASK, NotMechanicalError
from difftest.tools.migration.scope import (
    PARTITIONS,
    KnownTile,
    Scope,
    Shape,
    picks_one,
    sizes_of_slices,
)
from difftest.tools.syntax import indices_of, names_in

_VIEWS = ("reshape", "reshape_dim", "permute", "expand_dim", "broadcast")
"""Methods whose result has the dtype of the tensor."""


class NewOperand(NamedTuple):
    """An operand in the current dialect, and its tile without the mask; None for others."""

    text: str
    tile: KnownTile | None = None

    @property
    def shape(self) -> Shape | None:
        return None if self.tile is None else self.tile.shape

    @property
    def dtype(self) -> str | None:
        return None if self.tile is None else self.tile.dtype

    @property
    def is_scalar(self) -> bool:
        """Return whether the operand has one element in each partition."""
        return self.shape is not None and all(size == ONE for size in self.shape[1:])


class OperandWriter(ABC):
    """A writer of one statement's new lines and their operands.

    Each written line updates the function's scope.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names = scope.names
        self.lines: list[str] = []

    @abstractmethod
    def value(self, node: ast.expr, wish: str | None = None) -> ast.expr:
        """Rewrite an expression. Instructions that it needs are written on lines before it.

        ``wish`` is the preferred name if the whole expression becomes a new tile.
        """

    def emit(self, text: str) -> None:
        """Append a line and update the scope."""
        self.lines.append(text)
        self.scope.learn(ast.parse(text).body[0])

    def nl(self, name: str) -> str:
        """Return a name of ``nl``, qualified as in the file."""
        return f"{self.names.local('nl')}.{name}"

    def issue(self, name: str, dst: str, operands: dict[str, str]) -> None:
        """Write an instruction, such as ``nisa.tensor_copy``, with its operands by name."""
        module, function = name.split(".")
        text = f"{self.names.local(module)}.{function}(dst={dst}"
        for role, operand in operands.items():
            text += f", {role}={operand}"
        self.emit(f"{text})")

    def allocate(self, name: str, shape: str, dtype: str, buffer: str = "sbuf") -> str:
        """Write the allocation of a tile and return its name."""
        place = self.nl(buffer)
        self.emit(
            f"{name} = {self.nl('ndarray')}({shape}, dtype={dtype}, buffer={place})"
        )
        return name

    def named(self, text: str, wish: str) -> str:
        """Return a name for an expression that new lines use more than once."""
        if text.isidentifier():
            return text
        name = self.scope.new_name(wish)
        self.emit(f"{name} = {text}")
        return name

    def fresh(self, wish: str | None, source: ast.AST, name: str) -> str:
        """Return the name of a new tile: ``wish``, unless ``source`` reads that name."""
        if wish is None:
            return self.scope.new_name(f"{name}_result")
        if wish in names_in(source):
            return self.scope.new_name(f"new_{wish}")
        return wish

    def limits(self, mask: ast.expr | None) -> MaskBox:
        """Return the box that a mask selects. Computed element counts get a name."""
        if mask is None:
            return EVERYTHING
        return box(mask, self.scope.grids).with_ends(self._counted)

    def _counted(self, count: Term) -> Term:
        """Return a named term for the element count that a mask leaves of an axis."""
        if count.constant is not None or count.text().isidentifier():
            return count
        if count not in self.scope.counts:
            name = self.scope.new_name("count")
            self.emit(f"{name} = {count.text()}")
            self.scope.counts[count] = name
        return Term.parse(self.scope.counts[count])

    def items(self, node: ast.Subscript) -> list[ast.expr]:
        """Return the indices of a subscript, with block dimensions moved after the partitions."""
        items: list[ast.expr] = []
        for item in indices_of(node):
            items += self._axes(item)
        base = node.value
        if isinstance(base, ast.Name) and base.id in self.scope.blocks:
            count = self.scope.blocks[base.id]
            partitions, *others = items[count:] or [ast.Slice()]
            items = [partitions] + items[:count] + others
        return items

    def _axes(self, item: ast.expr) -> list[ast.expr]:
        """Return an index as a list. An ``nl.mgrid`` gives one index for each of its axes."""
        if not self.scope.grids.is_index(item):
            return [item]
        grid = self.scope.grids.defined(item)
        if not isinstance(grid, tuple) or len(grid) > len(AXES):
            return [item]
        return [
            ast.Attribute(item, name, ast.Load()) for name in list(AXES)[: len(grid)]
        ]

    def operand(self, node: ast.expr, limits: MaskBox = EVERYTHING) -> NewOperand:
        """Return an argument as an operand in the current dialect, sliced by the mask."""
        grids = self.scope.grids
        if isinstance(node, ast.Subscript) and not grids.uses(node.value):
            items = self.items(node)
            if any(grids.uses(item) for item in items):
                base = self.value(node.value)
                text, shape = views.view(ast.unparse(base), items, grids, limits)
                tile = self.scope.tile(base) or KnownTile()
                return NewOperand(
                    text, KnownTile(tuple(shape), tile.dtype, tile.buffer)
                )
        return self._masked(self.value(node), limits)

    def destination(self, node: ast.expr, limits: MaskBox = EVERYTHING) -> NewOperand:
        """Return a tile that an instruction writes to. ``[...]`` is left out."""
        operand = self.operand(node, limits)
        return operand._replace(text=operand.text.removesuffix("[...]"))

    def _masked(self, node: ast.expr, limits: MaskBox) -> NewOperand:
        tile = self.scope.tile(node)
        text = ast.unparse(node)
        if limits is EVERYTHING or isinstance(node, ast.Constant):
            return NewOperand(text, tile)
        text = text.removesuffix("[...]")
        if tile is None or (isinstance(expression(text), ast.Subscript)):
            raise NotMechanicalError(MASK)
        return NewOperand(
            views.whole(self.named(text, "masked"), tile.shape, limits), tile
        )

    def masked(self, name: str, limits: MaskBox) -> str:
        """Return the part of a new tile that a mask selects."""
        if limits is EVERYTHING:
            return name
        return views.whole(name, self.scope.tiles.get(name, KnownTile()).shape, limits)

    def dtype_of(self, operand: NewOperand) -> str:
        """Return the expression of an operand's dtype."""
        if operand.dtype:
            return operand.dtype
        node = expression(operand.text)
        while True:
            if isinstance(node, ast.Subscript) and not picks_one(node.slice):
                node = node.value
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _VIEWS
            ):
                node = node.func.value
            else:
                return f"{ast.unparse(node)}.dtype"

    def shape_of(self, operand: NewOperand) -> str:
        """Return the expression of an operand's shape."""
        shape = operand.shape
        if shape is not None and len(shape) > 1 and PARTITIONS not in shape:
            return written(shape)
        node = expression(operand.text)
        if shape is None and isinstance(node, ast.Subscript):
            # A tensor with more dimensions raises a shape error on launch.
            sizes = sizes_of_slices(indices_of(node))
            if sizes is not None:
                return written(sizes)
        return f"{operand.text}.shape"

    def size_of(self, operand: NewOperand, dim: int) -> str:
        """Return the expression of one size of an operand."""
        shape = operand.shape
        if shape is not None and len(shape) > dim and shape[dim] != PARTITIONS:
            return shape[dim].text()
        return f"{operand.text}.shape[{dim}]"

    def dtype(self, node: ast.expr | None) -> str | None:
        """Return an argument ``dtype=`` in the current dialect."""
        return None if node is None else ast.unparse(self.of_numpy(node))

    def of_numpy(self, node: ast.expr) -> ast.expr:
        """Return ``nl.float32`` for ``np.float32``, and ``nl.maximum`` for ``np.max``."""
        module, _, name = self.names.meant(node).partition(".")
        name = NAMES.get(name, name)
        if module == "np" and hasattr(language, name):
            return expression(self.nl(name))
        return self.value(node)

    def operator_name(self, node: ast.expr) -> str:
        """Return an argument ``op=`` in the current dialect."""
        module, _, name = self.names.meant(node).partition(".")
        if module in ("np", "nl"):
            return self.nl(NAMES.get(name, name))
        return ast.unparse(self.value(node))

    def column(self, operand: NewOperand) -> NewOperand:
        """Return a float32 copy of a tile, or the tile itself if it already is float32.

        ``tensor_scalar`` takes columns in float32.
        """
        float32 = self.nl("float32")
        if operand.dtype == float32:
            return operand
        source = operand.text
        if not source.replace(".", "").replace("[", "").replace("]", "").isidentifier():
            source = self.named(source, "narrow")
        shape = None if operand.shape is None else operand.shape[:2]
        return self._copy(source, "column", float32, shape)

    def in_sbuf(self, operand: NewOperand) -> NewOperand:
        """Copy an operand in PSUM to SBUF, because a DMA cannot read PSUM."""
        if operand.tile is None or operand.tile.buffer != "psum":
            return operand
        wanted = self.dtype_of(operand)
        return self._copy(
            self.named(operand.text, "product"), "copied", wanted, operand.shape
        )

    def _copy(
        self, source: str, wish: str, dtype: str, shape: Shape | None
    ) -> NewOperand:
        name = self.allocate(self.scope.new_name(wish), f"{source}.shape", dtype)
        self.issue("nisa.tensor_copy", name, {"src": source})
        return NewOperand(name, KnownTile(shape, dtype, "sbuf"))

    def has_dtype(self, dst: str, wanted: str | None) -> bool:
        """Return whether a destination surely has the requested dtype."""
        if wanted is None:
            return True
        node = expression(dst)
        while isinstance(node, ast.Subscript):
            node = node.value
        tile = self.scope.tile(node)
        return wanted in (f"{ast.unparse(node)}.dtype", tile and tile.dtype)


def written(shape: Shape) -> str:
    """Return a shape as a Python expression."""
    inner = ", ".join(map(Term.text, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression."""
    return ast.parse(text, mode="eval").body

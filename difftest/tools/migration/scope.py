"""The inferred values of one function's names: tiles with shapes, dtypes and buffers."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple

from difftest.tools.migration.calls import (
    ELEMENTWISE,
    MAKERS,
    NO_TILE,
    REDUCTIONS,
    positional,
)
from difftest.tools.migration.imports import ModuleNames
from difftest.tools.migration.indices import ONE, ZERO, Grids, Term, items_of

Shape = tuple[Term, ...]
PARTITIONS = Term.parse("PARTITIONS")
"""A placeholder for an unknown number of partitions. It is never written to a file."""


class KnownTile(NamedTuple):
    """The known properties of a tensor. None means unknown.

    Attributes
    ----------
    shape : the shape in the current dialect.
    dtype : the expression of the dtype.
    buffer : ``sbuf``, ``psum``, ``shared_hbm`` ...
    is_zero : whether the tensor starts with zeros.
    """

    shape: Shape | None = None
    dtype: str | None = None
    buffer: str | None = None
    is_zero: bool = False

    @property
    def in_hbm(self) -> bool:
        return self.buffer is not None and self.buffer.endswith("hbm")

    def names(self) -> set[str]:
        """Return the names that its shape uses."""
        return set().union(*(size.names() for size in self.shape or ()))


@dataclass
class Scope:
    """The names of a function."""

    names: ModuleNames
    grids: Grids
    tiles: dict[str, KnownTile] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    """The number of block dimensions before the partitions, by tile."""
    moves_blocks: bool = False
    """True while a tile with block dimensions is written."""
    counts: dict[Term, str] = field(default_factory=dict)
    """The names given to element counts, by the count that a mask leaves of an axis."""
    returns: dict[str, KnownTile] = field(default_factory=dict)
    """The tiles that the file's functions return, by function name."""
    integers: set[str] = field(default_factory=set)
    """Names of integers: sizes, loop variables, and results computed from them."""
    function: str | None = None
    """The function's name."""
    taken: set[str] = field(default_factory=set)
    """All names in use. New names differ from them."""

    def new_name(self, wish: str) -> str:
        """Return ``wish``, with a numeric suffix if the name is taken."""
        name = wish
        number = 1
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name

    def forget(self, changed: set[str]) -> None:
        """Discard knowledge that depends on names that were rebound."""
        self.grids.forget(changed)
        self.integers -= changed
        for count, name in list(self.counts.items()):
            if name in changed or count.names() & changed:
                del self.counts[count]
        for name, tile in list(self.tiles.items()):
            if name in changed:
                del self.tiles[name]
            elif tile.names() & changed:
                self.tiles[name] = tile._replace(shape=None)

    def loosen(self, assigned: set[str], updated: set[str]) -> None:
        """Discard knowledge of names that may have been rebound or updated.

        Assigned tiles stay tiles of unknown shape. Tiles that were only updated in place are kept.
        """
        tiles = {name: KnownTile() for name in assigned & set(self.tiles)}
        kept = {
            name: self.tiles[name] for name in updated - assigned if name in self.tiles
        }
        self.forget(assigned | updated)
        self.tiles |= tiles | kept

    def is_integer(self, node: ast.expr) -> bool:
        """Return whether an expression is known to be an integer."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int
        if isinstance(node, ast.Name):
            return node.id in self.integers
        if isinstance(node, ast.BinOp):
            whole = not isinstance(node.op, (ast.Div, ast.Pow))
            return whole and self.is_integer(node.left) and self.is_integer(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_integer(node.operand)
        of = node.value if isinstance(node, ast.Subscript) else None
        return isinstance(of, ast.Attribute) and of.attr == "shape"

    def learn(self, line: ast.stmt) -> None:
        """Update the scope with a statement of the new file."""
        if isinstance(line, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if isinstance(line, ast.AugAssign) and self.tile(line.target) is not None:
                return  # the tile is updated in place
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            self._bind(list(targets), line.value)
            return
        self.forget(bound_names(line))

    def _bind(self, targets: list[ast.expr], value: ast.expr | None) -> None:
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple):
            parts = value.elts if isinstance(value, ast.Tuple) else []
            if len(parts) == len(targets[0].elts):
                for target, part in zip(targets[0].elts, parts, strict=True):
                    self._bind([target], part)
                return
        tile = None if value is None else self.tile(value)
        is_integer = value is not None and self.is_integer(value)
        self.forget({name for target in targets for name in bound_names(target)})
        for target in targets:
            if isinstance(target, ast.Name) and tile is not None:
                self.tiles[target.id] = tile
            elif isinstance(target, ast.Name) and is_integer:
                self.integers.add(target.id)
            elif isinstance(target, ast.Tuple):
                self._unpack(target, value)

    def _unpack(self, target: ast.Tuple, value: ast.expr | None) -> None:
        """Record the sizes that ``rows, columns = a.shape`` names."""
        sizes = [
            item.id
            for item in target.elts
            if isinstance(item, ast.Name) and item.id != "_"
        ]
        if len(sizes) != len(target.elts) or getattr(value, "attr", "") != "shape":
            return
        assert isinstance(value, ast.Attribute)
        self.integers |= set(sizes)
        if isinstance(value.value, ast.Name):
            old = self.tiles.get(value.value.id, KnownTile(buffer="hbm"))
            self.tiles[value.value.id] = old._replace(
                shape=tuple(map(Term.parse, sizes))
            )

    def tile(self, node: ast.expr) -> KnownTile | None:
        """Return the tile that an expression of the current dialect is; None if unknown."""
        if isinstance(node, ast.Name):
            return self.tiles.get(node.id)
        if isinstance(node, ast.Subscript):
            base = self.tile(node.value)
            return None if base is None else self._sliced(base, items_of(node))
        if not isinstance(node, ast.Call):
            return None
        name = self.names.meant(node.func) or ""
        if isinstance(node.func, ast.Name):
            return self.returns.get(node.func.id)
        if isinstance(node.func, ast.Attribute) and not name:
            return self._viewed(node.func, node)
        if name.startswith(("nl.", "nisa.")) and name not in NO_TILE:
            return self._made(name, node)
        return None

    def _sliced(self, base: KnownTile, items: list[ast.expr]) -> KnownTile:
        if (
            len(items) == 1
            and isinstance(items[0], ast.Constant)
            and items[0].value is ...
        ):
            return base
        if base.shape is None or len(items) > len(base.shape):
            return KnownTile(_by_slices(items), base.dtype, base.buffer)
        shape: list[Term] = []
        for number, (item, size) in enumerate(zip(items, base.shape, strict=False)):
            selected = _selected(item, size)
            is_number = isinstance(item, (ast.BinOp, ast.UnaryOp)) or (
                isinstance(item, ast.Constant) and type(item.value) is int
            )
            if selected is not None:
                shape.append(selected)
            elif (
                number == 0
                and not base.in_hbm
                and (is_number or isinstance(item, ast.Name))
            ):
                shape.append(ONE)
            elif not is_number:  # a name may hold a slice: ``rows = slice(0, 8)``
                return KnownTile(None, base.dtype, base.buffer)
        shape += base.shape[len(items) :]
        if not base.in_hbm:
            shape += [ONE] * (2 - len(shape))
        return KnownTile(tuple(shape), base.dtype, base.buffer)

    def _viewed(self, function: ast.Attribute, call: ast.Call) -> KnownTile | None:
        """Return the tile of a view, such as ``tile.reshape(...)``."""
        base = self.tile(function.value)
        if base is None:
            return None
        shape = None
        if function.attr == "reshape" and len(call.args) == 1:
            shape = _sizes(call.args[0])
        if (
            function.attr == "expand_dim"
            and base.shape is not None
            and len(call.args) == 1
        ):
            place = Term.of(call.args[0]).constant
            shape = (
                None
                if place is None
                else (*base.shape[:place], ONE, *base.shape[place:])
            )
        return KnownTile(shape, base.dtype, base.buffer)

    def _made(self, name: str, call: ast.Call) -> KnownTile:
        """Return the tile that an NKI function returns."""
        keywords = {
            keyword.arg: keyword.value for keyword in call.keywords if keyword.arg
        }
        dtype = ast.unparse(keywords["dtype"]) if "dtype" in keywords else None
        operands = [self.tile(node) for node in [*call.args, *keywords.values()]]
        tiles = [tile for tile in operands if tile is not None]
        first = tiles[0] if tiles else KnownTile()
        if name in MAKERS:
            return self._new(name, call, keywords)
        if name in ELEMENTWISE:
            return KnownTile(first.shape, dtype or first.dtype, "sbuf")
        if name in REDUCTIONS:
            axis = keywords.get("axis", call.args[1] if len(call.args) > 1 else None)
            keeps = (
                "keepdims" in keywords and ast.unparse(keywords["keepdims"]) == "True"
            )
            return KnownTile(
                reduced(first.shape, axis, keeps), dtype or first.dtype, "sbuf"
            )
        if name == "nl.transpose":
            is_matrix = len(first.shape or ()) == 2
            shape = first.shape[::-1] if first.shape and is_matrix else None
            return KnownTile(shape, dtype or first.dtype, "psum")
        if name == "nl.matmul":
            return KnownTile(
                self._product(call), f"{self.names.local('nl')}.float32", "psum"
            )
        if name == "nl.broadcast_to" and len(call.args) > 1:
            return KnownTile(_sizes(call.args[1]), dtype or first.dtype, "sbuf")
        return KnownTile(None, dtype, None)

    def _product(self, call: ast.Call) -> Shape | None:
        """Return the shape of ``nl.matmul(x, y, transpose_x=...)``."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        sides = [
            *call.args,
            *(keywords[name] for name in ("x", "y") if name in keywords),
        ]
        tiles = [self.tile(side) for side in sides[:2]]
        if len(tiles) != 2 or any(
            tile is None or len(tile.shape or ()) != 2 for tile in tiles
        ):
            return None
        x, y = (tile.shape or () for tile in tiles if tile is not None)
        transposed = keywords.get(
            "transpose_x", call.args[2] if len(call.args) > 2 else None
        )
        is_transposed = transposed is not None and ast.unparse(transposed) == "True"
        return (x[1] if is_transposed else x[0], y[1])

    def _new(
        self, name: str, call: ast.Call, keywords: dict[str, ast.expr]
    ) -> KnownTile:
        arguments = dict(zip(positional(name), call.args, strict=False)) | keywords
        buffer = ast.unparse(arguments["buffer"]) if "buffer" in arguments else "sbuf"
        dtype = ast.unparse(arguments["dtype"]) if "dtype" in arguments else None
        shape = self._shape(arguments.get("shape"))
        return KnownTile(shape, dtype, buffer.rpartition(".")[2], name == "nl.zeros")

    def _shape(self, node: ast.expr | None) -> Shape | None:
        """Return the sizes of a literal shape, or of ``t.shape`` for a known tile."""
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            tile = self.tile(node.value)
            return None if tile is None else tile.shape
        return _sizes(node)


def _selected(item: ast.expr, size: Term | None = None) -> Term | None:
    """Return how many of ``size`` elements a slice selects; None without a slice or with a step."""
    if not isinstance(item, ast.Slice) or item.step is not None:
        return None
    stop = size if item.upper is None else Term.of(item.upper)
    return (
        None if stop is None else stop - (Term.of(item.lower) if item.lower else ZERO)
    )


def _by_slices(items: list[ast.expr]) -> Shape | None:
    """Return the sizes of a column ``t[:, k:k + 1]``, which may have any number of partitions."""
    if isinstance(items[0], ast.Slice) and items[0].lower is None:
        sizes = [_selected(items[0], PARTITIONS), *map(_selected, items[1:])]
    else:
        sizes = list(map(_selected, items))
    is_column = len(sizes) > 1 and all(size == ONE for size in sizes[1:])
    return None if None in sizes or not is_column else tuple(filter(None, sizes))


def sizes_of_slices(items: list[ast.expr]) -> Shape | None:
    """Return the sizes that slices with an upper end select, for two or more dimensions."""
    sizes = [size for item in items if (size := _selected(item)) is not None]
    return tuple(sizes) if len(sizes) == len(items) > 1 else None


def _sizes(node: ast.expr | None) -> Shape | None:
    """Return the sizes of a literal shape."""
    if not isinstance(node, (ast.Tuple, ast.List)):
        return None
    starred = any(isinstance(element, ast.Starred) for element in node.elts)
    return None if starred else tuple(map(Term.of, node.elts))


def axes_of(node: ast.expr | None) -> list[int] | None:
    """Return the axes of an argument, or None unless all are literal numbers."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    numbers = [Term.of(item).constant for item in items if item is not None]
    axes = [number for number in numbers if number is not None]
    return axes if axes and len(axes) == len(items) else None


def reduced(shape: Shape | None, axis: ast.expr | None, keeps: bool) -> Shape | None:
    """Return the shape of a reduction, which keeps at least two dimensions."""
    axes = axes_of(axis)
    if shape is None or axes is None:
        return None
    dims = {number % len(shape) for number in axes}
    left = [
        ONE if n in dims else size
        for n, size in enumerate(shape)
        if keeps or n not in dims
    ]
    return tuple([*left, ONE] if len(left) < 2 else left)


def bound_names(node: ast.AST) -> set[str]:
    """Return the names that a statement or a target binds."""
    return {
        name.id
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def tiled_blocks(function: ast.AST, names: ModuleNames) -> dict[str, int]:
    """Return the number of block dimensions of each tile that is always indexed by block."""
    blocks: dict[str, set[int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            place = _place(node.value, names)
            if place and isinstance(node.targets[0], ast.Name):
                blocks.setdefault(node.targets[0].id, set()).add(place)
    return {
        name: max(places)
        for name, places in blocks.items()
        if len(places) == 1 and _is_always_indexed(function, name, max(places))
    }


def _place(call: ast.Call, names: ModuleNames) -> int:
    """Return the position of ``par_dim`` in the shape of an allocation; 0 without ``par_dim``."""
    if names.meant(call.func) not in MAKERS:
        return 0
    shapes = [
        *call.args[:1],
        *(key.value for key in call.keywords if key.arg == "shape"),
    ]
    for shape in shapes:
        for place, size in enumerate(getattr(shape, "elts", [])):
            if isinstance(size, ast.Call) and names.meant(size.func) == "nl.par_dim":
                return place
    return 0


def _is_always_indexed(function: ast.AST, name: str, place: int) -> bool:
    """Return whether each use indexes all block dimensions, or reads the dtype."""
    uses = 0
    allowed = 0
    for node in ast.walk(function):
        uses += _is_use(node, name)
        if isinstance(node, ast.Attribute) and _is_use(node.value, name):
            allowed += node.attr == "dtype"
        if isinstance(node, ast.Subscript) and _is_use(node.value, name):
            items = items_of(node)[:place]
            allowed += len(items) == place and all(map(picks_one, items))
    return uses == allowed


def _is_use(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
    )


def picks_one(item: ast.expr) -> bool:
    """Return whether an index may pick one item, as of a list, rather than a part of a tile."""
    is_number = isinstance(item, ast.Constant) and type(item.value) is int
    return is_number or isinstance(item, (ast.Name, ast.BinOp))

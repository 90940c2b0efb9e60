"""The inferred values of one function's names: tiles with shapes, dtypes and buffers."""

from __future__ import annotations

import ast
from collections.abc import Mapping
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
from difftest.tools.migration.indices import ONE, Grids, Term
from difftest.tools.syntax import (
    argument_of,
    arguments_of,
    bound_names,
    indices_of,
    keyword_of,
    literal_of,
)

SHAPED = ELEMENTWISE | REDUCTIONS.keys() | {"nl.broadcast_to"}
"""Functions whose result is in SBUF and has a shape that follows from the arguments."""
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
        return set().union(*map(Term.names, self.shape or ()))


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

    def keep_counts(self, counts: Mapping[Term, str]) -> None:
        """Discard the counts that are not among ``counts``, as at the end of a block."""
        self.counts = {
            count: name for count, name in counts.items() if count in self.counts
        }

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

    def is_integer(self, node: ast.expr | None) -> bool:
        """Return whether an expression is surely an integer."""
        match node:
            case ast.Name(id=name):
                return name in self.integers
            case ast.BinOp(left=left, op=op, right=right):
                is_whole = not isinstance(op, (ast.Div, ast.Pow))
                return is_whole and self.is_integer(left) and self.is_integer(right)
            case ast.UnaryOp(operand=operand):
                return self.is_integer(operand)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
        return type(literal_of(node)) is int

    def learn(self, line: ast.stmt) -> None:
        """Update the scope with a statement of the new file."""
        if isinstance(line, ast.AugAssign) and self.tile(line.target) is not None:
            return  # the tile is updated in place
        if isinstance(line, ast.Assign):
            self._bind(line.targets, line.value)
        elif isinstance(line, (ast.AnnAssign, ast.AugAssign)):
            self._bind([line.target], line.value)
        else:
            self.forget(bound_names(line))

    def _bind(self, targets: list[ast.expr], value: ast.expr | None) -> None:
        pairs = _unpacked(targets, value)
        if pairs is not None:
            for target, part in pairs:
                self._bind([target], part)
            return
        tile = self.tile(value)
        is_integer = self.is_integer(value)
        self.forget(set().union(*map(bound_names, targets)))
        for target in targets:
            if isinstance(target, ast.Tuple):
                self._name_sizes(target.elts, value)
            name = getattr(target, "id", None)
            if name and tile is not None:
                self.tiles[name] = tile
            elif name and is_integer:
                self.integers.add(name)

    def _name_sizes(self, targets: list[ast.expr], value: ast.expr | None) -> None:
        """Record the sizes that ``rows, columns = a.shape`` names."""
        sizes = [getattr(target, "id", "_") for target in targets]
        if "_" in sizes or not isinstance(value, ast.Attribute):
            return
        if value.attr == "shape":
            self.integers |= set(sizes)
            if isinstance(value.value, ast.Name):
                old = self.tiles.get(value.value.id, KnownTile(buffer="hbm"))
                shape = tuple(map(Term.parse, sizes))
                self.tiles[value.value.id] = old._replace(shape=shape)

    def tile(self, node: ast.expr | None) -> KnownTile | None:
        """Return the tile that an expression of the current dialect is; None if unknown."""
        if isinstance(node, ast.Name):
            return self.tiles.get(node.id)
        if isinstance(node, ast.Subscript):
            base = self.tile(node.value)
            return None if base is None else _sliced(base, indices_of(node))
        return self._returned(node) if isinstance(node, ast.Call) else None

    def _returned(self, call: ast.Call) -> KnownTile | None:
        """Return the tile that a call returns; None if unknown."""
        name = self.names.meant(call.func)
        if isinstance(call.func, ast.Name):
            return self.returns.get(call.func.id)
        if isinstance(call.func, ast.Attribute) and not name:
            return self._viewed(call.func, call)
        if name in MAKERS:
            return self._new(name, call)
        if name == "nl.broadcast_to" and len(call.args) < 2:
            return KnownTile(None, _text_of(keyword_of(call, "dtype")))
        if name.startswith(("nl.", "nisa.")) and name not in NO_TILE:
            return self._computed(name, call)
        return None

    def _viewed(self, function: ast.Attribute, call: ast.Call) -> KnownTile | None:
        """Return the tile of a view, such as ``tile.reshape(...)``."""
        base = self.tile(function.value)
        if base is None:
            return None
        shape: Shape | None = None
        if function.attr == "reshape" and len(call.args) == 1:
            shape = _sizes(call.args[0])
        if function.attr == "expand_dim" and len(call.args) == 1:
            place = Term.of(call.args[0]).constant
            if base.shape is not None and place is not None:
                shape = base.shape[:place] + (ONE,) + base.shape[place:]
        return KnownTile(shape, base.dtype, base.buffer)

    def _computed(self, name: str, call: ast.Call) -> KnownTile:
        """Return the tile that an NKI function of other tiles returns."""
        dtype = _text_of(keyword_of(call, "dtype"))
        tiles = filter(None, map(self.tile, arguments_of(call)))
        first = next(tiles, KnownTile())
        if name == "nl.matmul":
            dtype = f"{self.names.local('nl')}.float32"
            return KnownTile(self._product(call), dtype, "psum")
        if name == "nl.transpose":
            is_matrix = len(first.shape or ()) == 2
            shape = first.shape[::-1] if first.shape and is_matrix else None
            return KnownTile(shape, dtype or first.dtype, "psum")
        if name not in SHAPED:
            return KnownTile(None, dtype, None)
        shape = _result_shape(name, call, first.shape)
        return KnownTile(shape, dtype or first.dtype, "sbuf")

    def _product(self, call: ast.Call) -> Shape | None:
        """Return the shape of ``nl.matmul(x, y, transpose_x=...)``."""
        shapes = []
        for place, name in enumerate(("x", "y")):
            tile = self.tile(argument_of(call, name, place)) or KnownTile()
            shapes.append(tile.shape or ())
        x, y = shapes
        if len(x) != 2 or len(y) != 2:
            return None
        is_transposed = _text_of(argument_of(call, "transpose_x", 2)) == "True"
        return (x[is_transposed], y[1])

    def _new(self, name: str, call: ast.Call) -> KnownTile:
        """Return the tile of an allocation."""
        arguments = dict(zip(positional(name), call.args, strict=False))
        for keyword in call.keywords:
            arguments[keyword.arg or ""] = keyword.value
        buffer = _text_of(arguments.get("buffer")) or "sbuf"
        dtype = _text_of(arguments.get("dtype"))
        shape = self._shape(arguments.get("shape"))
        return KnownTile(shape, dtype, buffer.rpartition(".")[2], name == "nl.zeros")

    def _shape(self, node: ast.expr | None) -> Shape | None:
        """Return the sizes of a literal shape, or of ``t.shape`` for a known tile."""
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            tile = self.tile(node.value)
            return None if tile is None else tile.shape
        return _sizes(node)


def _result_shape(name: str, call: ast.Call, shape: Shape | None) -> Shape | None:
    """Return the shape of an elementwise function, a reduction or a broadcast."""
    if name == "nl.broadcast_to":
        return _sizes(call.args[1])
    if name in ELEMENTWISE:
        return shape
    keeps = _text_of(keyword_of(call, "keepdims")) == "True"
    return reduced(shape, argument_of(call, "axis", 1), keeps)


def _text_of(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _unpacked(
    targets: list[ast.expr], value: ast.expr | None
) -> list[tuple[ast.expr, ast.expr]] | None:
    """Return the pairs of ``a, b = x, y``; None for an assignment of another form."""
    if len(targets) != 1 or not isinstance(value, ast.Tuple):
        return None
    [target] = targets
    if not isinstance(target, ast.Tuple) or len(target.elts) != len(value.elts):
        return None
    return list(zip(target.elts, value.elts, strict=True))


def _sliced(base: KnownTile, items: list[ast.expr]) -> KnownTile:
    """Return a part of a tile."""
    if len(items) == 1 and literal_of(items[0]) is ...:
        return base
    if base.shape is None or len(items) > len(base.shape):
        return base._replace(shape=_by_slices(items), is_zero=False)
    shape = _sizes_of_part(base.shape, items, base.in_hbm)
    if shape is not None and not base.in_hbm:
        shape += (ONE,) * (2 - len(shape))
    return base._replace(shape=shape, is_zero=False)


def _sizes_of_part(whole: Shape, items: list[ast.expr], in_hbm: bool) -> Shape | None:
    """Return the sizes that remain of a shape. On chip, the partitions remain a dimension."""
    shape: list[Term] = []
    for number, (item, size) in enumerate(zip(items, whole, strict=False)):
        selected = _selected(item, size)
        is_number = isinstance(item, (ast.BinOp, ast.UnaryOp))
        is_number = is_number or type(literal_of(item)) is int
        is_partition = number == 0 and not in_hbm
        if selected is not None:
            shape.append(selected)
        elif is_partition and (is_number or isinstance(item, ast.Name)):
            shape.append(ONE)
        elif not is_number:  # a name may hold a slice: ``rows = slice(0, 8)``
            return None
    return (*shape, *whole[len(items) :])


def _selected(item: ast.expr, size: Term | None = None) -> Term | None:
    """Return how many of ``size`` elements a slice selects; None without a slice or with a step."""
    if not isinstance(item, ast.Slice) or item.step is not None:
        return None
    stop = size if item.upper is None else Term.of(item.upper)
    if stop is None or item.lower is None:
        return stop
    return stop - Term.of(item.lower)


def _by_slices(items: list[ast.expr]) -> Shape | None:
    """Return the sizes of a column ``t[:, k:k + 1]``, which may have any number of partitions."""
    partitions = _selected(items[0])
    if isinstance(items[0], ast.Slice) and items[0].lower is None:
        partitions = _selected(items[0], PARTITIONS)
    others = list(map(_selected, items[1:]))
    if partitions is None or set(others) != {ONE}:
        return None
    return (partitions, *[ONE] * len(others))


def sizes_of_slices(items: list[ast.expr]) -> Shape | None:
    """Return the sizes that slices with an upper end select, for two or more dimensions."""
    sizes = tuple(filter(None, map(_selected, items)))
    return sizes if len(sizes) == len(items) > 1 else None


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
    left: Shape = ()
    for dim, size in enumerate(shape):
        if dim not in dims:
            left += (size,)
        elif keeps:
            left += (ONE,)
    return (*left, ONE) if len(left) < 2 else left


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
    if names.called(call) not in MAKERS:
        return 0
    shape = argument_of(call, "shape", 0)
    for place, size in enumerate(getattr(shape, "elts", [])):
        if names.called(size) == "nl.par_dim":
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
            items = indices_of(node)[:place]
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
    is_number = type(literal_of(item)) is int
    return is_number or isinstance(item, (ast.Name, ast.BinOp))

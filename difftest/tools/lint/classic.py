"""Rules of the classic tracer: scopes, masks, outputs, indices, placed tensors, and hazards.

Source: the page of errors, ``general/nki/api/nki.errors.rst`` at v2.26.0.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeGuard

from difftest.tools.lint.rule import Frontend, Group, Refusal, rule
from difftest.tools.lint.source import RuleContext
from difftest.tools.lint.type_inference import (
    MAKERS,
    TRACED_ONCE,
    Binding,
    ValueType,
    parts_of,
    targets_of,
)

_CLASSIC: dict[str, Any] = {
    "group": Group.CORRECTNESS,
    "frontends": frozenset({Frontend.CLASSIC}),
}
_UNKNOWN = (ValueType.TILE, ValueType.INDEX, ValueType.LINE, ValueType.MASK)
"""Types of expressions whose values are unknown while the kernel is traced."""
_TENSORS = (ValueType.TILE, ValueType.TENSOR)
_PARTS = (ast.Name, ast.Subscript)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With)
_GATHERS_SINCE = {"nl.load_transpose2d": 99, "nisa.dma_transpose": 27}
"""The first SDK 2.x that transposes by indices: test_nki_isa_dma_transpose.py at v2.27.0."""
_WRITERS = ("nl.store", "nisa.dma_copy", "nl.atomic_rmw")

_ALLOCATORS = tuple(
    f"nki.compiler.{memory}.{name}"
    for memory in ("sbuf", "psum")
    for name in ("alloc", "mod_alloc")
)
_WITH_VALUES = ("nl.zeros", "nl.ones", "nl.full")
_ACTIVATED = [
    *("nisa.activation", "nisa.activation_reduce"),
    *(
        "nl.exp",
        "nl.log",
        "nl.sin",
        "nl.cos",
        "nl.tan",
        "nl.tanh",
        "nl.arctan",
        "nl.sqrt",
    ),
    *(
        "nl.rsqrt",
        "nl.sigmoid",
        "nl.relu",
        "nl.gelu",
        "nl.silu",
        "nl.erf",
        "nl.softplus",
    ),
    *(
        "nl.mish",
        "nl.square",
        "nl.gelu_dx",
        "nl.silu_dx",
        "nl.erf_dx",
        "nl.gelu_apprx_tanh",
    ),
]
"""Functions that the Scalar Engine computes as an activation. The compiler creates their bias."""
HAZARDS = ("NKH401", "NKH402")
"""The hazard rules of this module. Detectors that read a trace are more precise."""


@rule(
    "NKT201",
    nodes=(ast.BoolOp, ast.UnaryOp, ast.Compare),
    **{**_CLASSIC, "group": Group.UPGRADE},
)
def _mask(
    node: ast.BoolOp | ast.UnaryOp | ast.Compare, at: RuleContext
) -> Iterator[Refusal]:
    is_plain = len(node.ops) == 1 if isinstance(node, ast.Compare) else False
    if is_plain or (isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not)):
        return
    chain = [node, *at.source.around(node)]
    whole = next(
        link
        for link, two in pairwise(chain)
        if not isinstance(two, (ast.BoolOp, ast.UnaryOp))
    )
    is_condition = getattr(at.source.parents[whole], "test", None) is whole
    if at.kind(node) in _UNKNOWN and not is_condition:
        yield node, ast.unparse(node)


@rule("NKT202", nodes=(ast.FunctionDef,), **_CLASSIC)
def _scope(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    if at.function is node:
        yield from _uses_after(node.body, at, set())


@rule("NKT203", nodes=(ast.Call,), **_CLASSIC)
def _shared(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in MAKERS:
        return
    values = (*node.args, *(keyword.value for keyword in node.keywords))
    is_shared = any(at.name(at.value(value)) == "nl.shared_hbm" for value in values)
    is_shared = is_shared or any(_is_given_shared(value, at) for value in values)
    if is_shared:
        is_helper = at.function in at.source.in_kernels - at.source.kernels
        if is_helper or any(_is_scope(block, at) for block in at.source.around(node)):
            where = "a helper" if is_helper else "a block"
            yield node, f"{ast.unparse(node.func)} makes shared HBM in {where}"


def _is_given_shared(value: ast.expr, at: RuleContext) -> bool:
    """Return whether a value is a parameter that a call in the file sets to ``nl.shared_hbm``."""
    if at.function is None or not isinstance(value, ast.Name):
        return False
    if value.id not in {arg.arg for arg in at.function.args.args}:
        return False
    given = [
        part
        for call in at.source.calls_by_name.get(at.function.name, ())
        for part in (*call.args, *(keyword.value for keyword in call.keywords))
    ]
    return any(at.name(part) == "nl.shared_hbm" for part in given)


@rule("NKT204", nodes=(ast.FunctionDef,), **_CLASSIC)
def _mutable(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    mutable = {arg.arg for arg in node.args.args if _is_mutable(arg, at)}
    ends: list[ast.AST] = [
        inner for inner in ast.walk(node) if isinstance(inner, ast.Return)
    ]
    for end in (ends or [node]) if mutable and node in at.source.kernels else ():
        value = end.value if isinstance(end, ast.Return) else None
        returned = {getattr(inner, "id", "") for inner in ast.walk(value or ast.Pass())}
        for name in sorted(mutable - returned):
            yield end, f"{node.name} does not return {name}"


@rule(
    "NKT205",
    nodes=(ast.Call,),
    since="2.27",
    **{**_CLASSIC, "group": Group.PORTABILITY},
)
def _block(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in MAKERS or not node.args:
        return
    shape = node.args[0]
    sizes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else []
    for size in sizes[1:]:
        if isinstance(size, ast.Call) and at.name(size.func) == "nl.par_dim":
            yield size, f"{ast.unparse(size)} is not the first of {ast.unparse(shape)}"


@rule("NKT206", nodes=(ast.AnnAssign,), **_CLASSIC)
def _annotation(node: ast.AnnAssign, at: RuleContext) -> Iterator[Refusal]:
    annotated = node.annotation
    call = node.value
    if (
        not isinstance(annotated, ast.Subscript)
        or at.name(annotated.value) != "nt.tensor"
    ):
        return
    shape = _sizes(annotated.slice, at)
    if isinstance(call, ast.Subscript) and _differ_from_slices(shape, call):
        yield node.annotation, f"{ast.unparse(annotated)} annotates {ast.unparse(call)}"
    if (
        isinstance(call, ast.Call)
        and at.name(call.func) in (*MAKERS, "nl.load")
        and call.args
    ):
        first = call.args[0]
        sizes = (
            _sizes(first, at)
            if at.name(call.func) in MAKERS
            else _sliced(first, len(shape))
        )
        if shape and sizes and None not in (*shape, *sizes) and shape != sizes:
            yield (
                node.annotation,
                f"{ast.unparse(annotated)} annotates a tensor {list(sizes)}",
            )


def _differ_from_slices(shape: list[int | None], tile: ast.Subscript) -> bool:
    """Return whether a known size differs from the length of a subscript's slice."""
    lengths = [_length(part) for part in parts_of(tile)]
    pairs = zip(shape, lengths, strict=False)
    differ = any(None not in pair and pair[0] != pair[1] for pair in pairs)
    return differ and len(shape) == len(lengths)


@rule("NKT207", nodes=(ast.If, ast.While, ast.IfExp), **_CLASSIC)
def _condition(
    node: ast.If | ast.While | ast.IfExp, at: RuleContext
) -> Iterator[Refusal]:
    kind = at.kind(node.test)
    if kind in _UNKNOWN:
        yield node.test, f"{ast.unparse(node.test)}, a condition, is {kind.value}"


@rule("NKT208", nodes=(ast.Call,), **_CLASSIC)
def _outside(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.is_module_level and at.source.is_instruction(node):
        yield node, f"{at.name(node.func)} is called outside of a function"


@rule("NKT209", nodes=(ast.Call,), **_CLASSIC)
def _inner_grid(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    called = node.func.value if isinstance(node.func, ast.Subscript) else None
    own = at.source.functions.get(getattr(called, "id", ""), ())
    if at.function is not None and not at.source.kernels.isdisjoint(own):
        yield node, f"{at.function.name} calls {ast.unparse(node.func)}"


@rule("NKT214", nodes=(ast.Call, ast.Assign, ast.AugAssign), **_CLASSIC)
def _parameter(
    node: ast.Call | ast.Assign | ast.AugAssign, at: RuleContext
) -> Iterator[Refusal]:
    if isinstance(node, ast.Call):
        name = at.name(node.func)
        written = at.argument(node, "dst", 0) if name in _WRITERS else None
        yield from _written_parameter(node, written, f"{name}", at)
    else:
        for target in targets_of(node):
            if _is_slice(target):
                yield from _written_parameter(node, target, "an assignment", at)


def _is_slice(target: ast.expr) -> bool:
    """Return whether a target is a slice. Other subscripts may be items of a list."""
    return isinstance(target, ast.Subscript) and any(
        isinstance(part, ast.Slice) or ast.unparse(part) == "..."
        for part in parts_of(target)
    )


def _written_parameter(
    node: ast.AST, written: ast.AST | None, did: str, at: RuleContext
) -> Iterator[Refusal]:
    """Yield a refusal if ``written`` is a parameter that the kernel may not change."""
    base = written.value if isinstance(written, ast.Subscript) else written
    root = base and at.value(base)  # resolve other names of the parameter
    if at.function not in at.source.kernels or not isinstance(root, ast.Name):
        return
    returns = any(
        isinstance(inner, ast.Return) and inner.value for inner in ast.walk(at.function)
    )
    for arg in at.function.args.args if returns and at.value(root) is root else ():
        if arg.arg == root.id and not _is_mutable(arg, at):
            yield node, f"{did} writes to {arg.arg}, a parameter"


@rule("NKT215", nodes=(ast.Subscript,), **_CLASSIC)
def _line(node: ast.Subscript, at: RuleContext) -> Iterator[Refusal]:
    for part in parts_of(node) if at.kind(node.value) is not ValueType.LINE else ():
        if at.kind(part) is ValueType.LINE:
            yield (
                part,
                f"{ast.unparse(node)} has {ast.unparse(part)}, an index of one dimension",
            )


@rule("NKT216", nodes=(ast.Call,), **_CLASSIC)
def _gathers(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func) or ""
    moved = at.argument(node, "src", 0)
    parts = parts_of(moved) if isinstance(moved, ast.Subscript) else []
    is_early = at.sdk.minor < _GATHERS_SINCE.get(name, 0)
    if (
        moved is not None
        and is_early
        and any(at.kind(part) is ValueType.TILE for part in parts)
    ):
        yield moved, f"{name} got {ast.unparse(moved)}"


def _uses_after(
    body: list[ast.stmt], at: RuleContext, lost: set[str]
) -> Iterator[Refusal]:
    """Yield uses of tensors after the block that created them.

    ``lost`` holds the tensors of earlier blocks.
    """
    for statement in body:
        assigned = {
            name.id for name in ast.walk(statement) if _is_name(name, ast.Store)
        }
        if isinstance(statement, _BLOCKS):
            for part in (statement.body, getattr(statement, "orelse", [])):
                yield from _uses_after(part, at, set(lost))
            lost -= set() if _is_scope(statement, at) else assigned
            lost |= _made(statement, at, False)
        else:
            for inner in ast.walk(statement):
                if _is_name(inner, ast.Load) and inner.id in lost:
                    yield inner, f"{inner.id} is used after the block that makes it"
            lost -= assigned


def _made(node: ast.AST, at: RuleContext, is_inside: bool) -> set[str]:
    """Return the names of new tensors inside a block that has its own scope."""
    if isinstance(node, ast.Assign):
        is_new = at.kind(node.value) is ValueType.TILE and not isinstance(
            node.value, _PARTS
        )
        return {
            item.id
            for item in node.targets
            if isinstance(item, ast.Name) and is_new and is_inside
        }
    is_inside |= _is_scope(node, at)
    return {
        name
        for child in ast.iter_child_nodes(node)
        for name in _made(child, at, is_inside)
    }


def _is_scope(node: ast.AST, at: RuleContext) -> bool:
    """Return whether a block has its own scope. Blocks that Python values control have none."""
    if isinstance(node, ast.For):
        called = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
        return (at.name(called) or ast.unparse(called)) in (*TRACED_ONCE, "range")
    if isinstance(node, ast.If):
        return at.kind(node.test) in (*_UNKNOWN, ValueType.TURN)
    return isinstance(node, ast.While)


def _is_name(node: ast.AST, context: type[ast.expr_context]) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, context)


def _is_mutable(parameter: ast.arg, at: RuleContext) -> bool:
    return parameter.annotation is not None and _names_mutable(parameter.annotation, at)


def _names_mutable(annotation: ast.expr, at: RuleContext) -> bool:
    """Return whether an annotation, or a string inside it, names a mutable NKI tensor."""
    for node in ast.walk(annotation):
        if at.name(node) in ("nt.mutable_tensor", "nt.mutable"):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError):
                if _names_mutable(ast.parse(node.value, mode="eval").body, at):
                    return True
    return False


def _sizes(node: ast.expr, at: RuleContext) -> list[int | None]:
    """Return the sizes of a shape, with None for each size that is not a literal."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [_size(part, at) for part in parts]


def _size(node: ast.expr, at: RuleContext) -> int | None:
    if isinstance(node, ast.Call) and at.name(node.func) == "nl.par_dim" and node.args:
        node = node.args[0]
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else None


def _sliced(node: ast.expr, rank: int) -> list[int]:
    """Return the length of the slice of each dimension; empty unless all ends are literals."""
    parts = parts_of(node) if isinstance(node, ast.Subscript) else []
    slices = [
        part for part in parts if isinstance(part, ast.Slice) and part.step is None
    ]
    ends = [
        (getattr(it.lower, "value", 0), getattr(it.upper, "value", None))
        for it in slices
    ]
    lengths = [
        up - low for low, up in ends if isinstance(low, int) and isinstance(up, int)
    ]
    is_plain = all(
        it.lower is None or isinstance(it.lower, ast.Constant) for it in slices
    )
    return lengths if is_plain and len(parts) == rank == len(lengths) else []


def _length(part: ast.expr) -> int | None:
    """Return the length of a slice with literal ends, or None for any other index."""
    if not isinstance(part, ast.Slice) or part.step is not None:
        return None
    low = 0 if part.lower is None else getattr(part.lower, "value", None)
    high = getattr(part.upper, "value", None)
    if type(low) is not int or type(high) is not int or low < 0 or high < low:
        return None
    return high - low


@rule("NKT210", nodes=(ast.Call,), **_CLASSIC)
def _bias(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in _ACTIVATED or not _places(at):
        return
    if (
        not any(keyword.arg in ("bias", None) for keyword in node.keywords)
        and len(node.args) < 3
    ):
        yield node, f"{ast.unparse(node.func)} got no bias"


@rule("NKT211", nodes=(ast.Call,), **_CLASSIC)
def _transpose(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    if name not in ("nisa.nc_transpose", "nl.matmul") or not _places(at):
        return
    needed = "engine" if name == "nisa.nc_transpose" else "transpose_x"
    value = at.argument(node, needed)
    if value is None:
        yield node, f"{name} got no {needed}"
    elif at.name(value) == "nisa.tensor_engine":
        yield node, f"{name} got engine={ast.unparse(value)}"


@rule("NKT212", nodes=(ast.Call,), **_CLASSIC)
def _value(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    buffer = at.argument(node, "buffer")
    if (
        at.name(node.func) in _WITH_VALUES
        and buffer is not None
        and _is_allocator(buffer, at)
    ):
        yield node, f"{ast.unparse(node.func)} got buffer={ast.unparse(buffer)}"


@rule("NKT213", nodes=(ast.Call,), **_CLASSIC)
def _free_index(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in ("nl.load", "nl.store") or not node.args:
        return
    moved = at.value(node.args[0])
    first, *rest = parts_of(moved) if isinstance(moved, ast.Subscript) else [moved]
    for part in rest:
        if at.kind(first) is ValueType.TILE and _is_of_grid(part, at):
            yield (
                part,
                f"{ast.unparse(moved)} has an index of nl.mgrid beside a tile of indices",
            )
    if (
        rest
        and at.kind(rest[-1]) is ValueType.TILE
        and any(_spans(p, at) for p in (first, *rest[:-1]))
    ):
        yield (
            rest[-1],
            f"{ast.unparse(moved)} has a tile of indices in its last dimension",
        )


def _spans(part: ast.AST, at: RuleContext) -> bool:
    """Return whether an index may select more than one element.

    In ``x[block, rows, j]``, a tile of indices after single blocks selects the partitions.
    """
    return isinstance(part, ast.Slice) or at.kind(part) in (
        ValueType.TILE,
        ValueType.INDEX,
        ValueType.LINE,
    )


def _is_of_grid(node: ast.AST, at: RuleContext) -> bool:
    """Return whether an index is a part of an ``nl.mgrid``."""
    value = at.value(node)
    is_part = isinstance(value, (ast.Subscript, ast.Attribute))
    return is_part and at.kind(value.value) is ValueType.GRID  # type: ignore[attr-defined]


def _places(at: RuleContext) -> bool:
    """Return whether the function, or a kernel that reaches it, allocates tensors explicitly."""
    if at.function is None:
        return False
    callers = [
        kernel
        for kernel in at.source.kernels
        if at.function in at.source.reached(kernel)
    ]
    return any(
        _is_allocator(node, at)
        for function in (at.function, *callers)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    )


def _is_allocator(node: ast.AST, at: RuleContext) -> bool:
    return isinstance(node, ast.Call) and at.name(node.func) in _ALLOCATORS


@rule("NKH401", nodes=(ast.For,), **_CLASSIC)
def _one_place(node: ast.For, at: RuleContext) -> Iterator[Refusal]:
    if (
        at.function is None
        or _range(node, at) != "nl.affine_range"
        or _runs_once(node, at)
    ):
        return
    own = at.source.kinds(at.function).bound_in(node)
    for written, mask in _written(node, at):
        name = getattr(written.value, "id", None)
        chosen = [written.slice, *mask, *_conditions(written, node, at)]
        if name and name not in own and not _follows(chosen, node, at):
            yield (
                written,
                f"each iteration over {ast.unparse(node.target)} writes {ast.unparse(written)}",
            )


def _runs_once(loop: ast.For, at: RuleContext) -> bool:
    """Return whether a loop is over ``range(1)``."""
    ends = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    return len(ends) == 1 and getattr(at.value(ends[0]), "value", None) == 1


def _conditions(node: ast.AST, loop: ast.For, at: RuleContext) -> Iterator[ast.AST]:
    """Yield the conditions inside a loop that a node depends on."""
    for block in at.source.around(node):
        if block is loop:
            return
        if isinstance(block, (ast.If, ast.While, ast.IfExp)):
            yield block.test


def _follows(chosen: list[ast.AST], loop: ast.For, at: RuleContext) -> bool:
    """Return whether an index, a mask or a condition may differ between iterations of a loop.

    It may if it is computed from the loop variable, or from a tile of indices that the loop or a
    function of the file may fill.
    """
    kinds = at.source.kinds(at.function) if at.function else None
    names = set().union(*(kinds.origins(part) for part in chosen)) if kinds else set()
    loop_names = {getattr(part, "id", "") for part in ast.walk(loop.target)}
    return bool(names & (loop_names | _filled(loop, at)))


def _filled(loop: ast.For, at: RuleContext) -> set[str]:
    """Return the names of tensors whose contents the statements of a loop may change."""
    filled: list[ast.expr] = []
    for node in ast.walk(loop):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            filled += [
                target
                for target in targets_of(node)
                if isinstance(target, ast.Subscript)
            ]
        elif isinstance(node, ast.Call) and at.name(node.func) is None:
            filled += [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Call):
            filled += [
                keyword.value for keyword in node.keywords if keyword.arg == "dst"
            ]
    bases = (part.value if isinstance(part, ast.Subscript) else part for part in filled)
    return {base.id for base in bases if isinstance(base, ast.Name)}


@rule("NKH402", nodes=(ast.For,), **_CLASSIC)
def _carried(node: ast.For, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None or _range(node, at) not in TRACED_ONCE:
        return
    for name, bindings in at.source.kinds(at.function).bound_in(node).items():
        first = min(bindings, key=lambda binding: binding.end)
        is_number = first.value is not None and at.kind(first.value) in (
            ValueType.NUMBER,
            ValueType.TURN,
        )
        if is_number and first.by is not node and _is_read(name, node, first, at):
            yield (
                first.by,
                f"{name} is carried between iterations over {ast.unparse(node.target)}",
            )


def _is_read(name: str, loop: ast.For, first: Binding, at: RuleContext) -> bool:
    """Return whether an iteration uses the previous iteration's value of a name.

    Uses that only place tensors do not count.
    """
    reads = [
        use for use in ast.walk(loop) if isinstance(use, ast.Name) and use.id == name
    ]
    reads = [use for use in reads if isinstance(use.ctx, ast.Load)]
    is_before = isinstance(first.by, ast.AugAssign) or any(
        (use.lineno, use.col_offset) < first.end for use in reads
    )
    return is_before and any(
        not any(_is_excused(block, name, at) for block in at.source.around(read))
        for read in reads
    )


def _is_excused(node: ast.AST, name: str, at: RuleContext) -> bool:
    """Return whether a node computes the name's next value, or allocates a tensor."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        return name in [getattr(target, "id", "") for target in targets_of(node)]
    return isinstance(node, ast.Call) and at.name(node.func) in _ALLOCATORS


def _range(loop: ast.For, at: RuleContext) -> str | None:
    return at.name(loop.iter.func) if isinstance(loop.iter, ast.Call) else None


def _written(
    loop: ast.For, at: RuleContext
) -> Iterator[tuple[ast.Subscript, list[ast.expr]]]:
    """Yield the parts of tensors that a loop assigns or stores to, each with its masks.

    ``+=`` and ``nl.loop_reduce`` are excluded, because they accumulate.
    """
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and not _adds(node.value, at):
            for part in targets_of(node):
                if isinstance(part, ast.Subscript) and at.kind(part.value) in _TENSORS:
                    yield part, _mask_of(node.value)
        elif isinstance(node, ast.Call) and at.name(node.func) == "nl.store":
            for part in node.args[:1]:
                if isinstance(part, ast.Subscript):
                    yield part, _mask_of(node)


def _adds(node: ast.expr, at: RuleContext) -> bool:
    """Return whether an expression is ``nl.loop_reduce(...)``."""
    return isinstance(node, ast.Call) and at.name(node.func) == "nl.loop_reduce"


def _mask_of(node: ast.expr) -> list[ast.expr]:
    """Return the masks of an expression's calls."""
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return [key.value for call in calls for key in call.keywords if key.arg == "mask"]

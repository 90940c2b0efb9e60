"""Generate all mutants of a function: apply each mutation operator at each place where it fits.

This module also defines the operators for NKI in both dialects: instructions, their operands and
options, and buffers.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from types import FunctionType

from difftest.tools.mutants.mutant import (
    KernelText,
    Mutant,
    qualified_name,
    read_source,
)
from difftest.tools.mutants.operators import (
    BUGS,
    MutationSite,
    Replacement,
    called_name,
    mutation_operator,
)
from difftest.tools.syntax import bound_names, keywords_of, names_in

_LANGUAGES = ("nki.language", "neuronxcc.nki.language")


def mutants_of(functions: Iterable[FunctionType]) -> list[Mutant]:
    """Return the mutants of functions in the order of their places, without duplicate texts."""
    mutants: dict[tuple[str, int, int, str], Mutant] = {}
    for function in functions:
        file = function.__code__.co_filename
        source = read_source(file)
        node = source.function_at(function.__code__.co_firstlineno)
        language = _language(source, node)
        for name, at, text in _replacements(node, source, language):
            change = source.change(at, text)
            if source.text[change.start : change.end] != change.text:
                key = (file, change.start, change.end, change.text)
                mutants.setdefault(
                    key, Mutant(file, qualified_name(function), name, change)
                )
    return sorted(
        mutants.values(), key=lambda row: (row.file, row.change.start, row.change.end)
    )


def _replacements(
    function: ast.FunctionDef, source: KernelText, language: str
) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the name of each operator that fits, the node to replace, and its new text."""
    for parents, node in _walk(function):
        site = MutationSite(node, parents, source, language)
        for name, kinds, operator in BUGS:
            if isinstance(node, kinds):
                yield from ((name, at, text) for at, text in operator(site))


def _walk(function: ast.FunctionDef) -> Iterator[tuple[tuple[ast.AST, ...], ast.AST]]:
    """Yield the nodes of a function's body, each with its parents.

    The walk skips f-strings, messages of ``assert``, and ``raise`` statements. It enters nested
    functions.
    """
    left: list[tuple[tuple[ast.AST, ...], ast.AST]] = [
        ((), line) for line in function.body
    ]
    while left:
        parents, node = left.pop()
        if isinstance(node, (ast.JoinedStr, ast.Raise)):
            continue
        if parents and isinstance(parents[0], ast.Assert) and node is parents[0].msg:
            continue
        yield parents, node
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.FunctionDef):
            inner = node.body
        left += [((node, *parents), child) for child in inner]


def _language(source: KernelText, function: ast.FunctionDef) -> str:
    """Return a function's name for ``nki.language``; empty if it does not use it."""
    used = names_in(function)
    for node in ast.walk(source.tree):
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.name in _LANGUAGES and alias.asname in used:
                return str(alias.asname)
    return ""


_SWAPS = {"maximum": "minimum", "max": "min", "add": "subtract", "less": "less_equal"}
_SWAPS |= {"greater": "greater_equal"} | {
    second: first for first, second in _SWAPS.items()
}
_OTHERS = {"multiply": "add", "divide": "multiply", "exp": "square", "square": "copy"}
_OTHERS |= {"greater_equal": "greater", "rsqrt": "sqrt", "silu": "gelu"} | _SWAPS
"""The operation that replaces each operation."""
_OPTIONAL = (
    "bias",
    "scale",
    "mask",
    "op1",
    "operand1",
    "pattern",
    "channel_multiplier",
    "offset",
)
"""Optional arguments: without one, the instruction stays valid but computes something else."""
_PAIRS = (
    ("data1", "data2"),
    ("stationary", "moving"),
    ("operand0", "operand1"),
    ("op0", "op1"),
)
_COMMUTATIVE = ("add", "multiply", "maximum", "minimum", "max", "min")
_ORDERED = ("subtract", "divide", "nc_matmul", "matmul")
"""Calls of the classic dialect that do not commute in their first two arguments."""
_PASSED_ON = (
    "tensor_scalar",
    "multiply",
    "add",
    "subtract",
    "divide",
    "maximum",
    "minimum",
)
_TRANSPOSES = ("nc_transpose", "transpose", "dma_transpose")
_BUFFERS = ("ndarray", "zeros", "full", "ones", "empty")


@mutation_operator("transpose left out", ast.Call)
def _transpose_left_out(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    if called_name(node) not in _TRANSPOSES:
        return
    keywords = keywords_of(node)
    if "dst" in keywords and isinstance(node.func, ast.Attribute):
        data = keywords.get("data", keywords.get("src"))
        if data is not None:
            package = site.source.segment(node.func.value)
            text = f"dst={site.source.segment(keywords['dst'])}, src={site.source.segment(data)}"
            yield node, f"{package}.tensor_copy({text})"
    elif len(node.args) == 1:
        yield node, site.text(node.args[0])


@mutation_operator("instruction passed over", ast.Call)
def _passed_over(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    is_method = isinstance(node.func, ast.Attribute)
    if is_method and called_name(node) in _PASSED_ON and node.args:
        yield node, site.text(node.args[0])


@mutation_operator("instruction left out", ast.Expr, ast.Assign)
def _left_out(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    stored = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    if stored or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node, "pass"


@mutation_operator("operands swapped", ast.Call)
def _operands_swapped(site: MutationSite) -> Iterator[Replacement]:
    yield from _keywords_swapped(site)
    yield from _arguments_swapped(site)


def _keywords_swapped(site: MutationSite) -> Iterator[Replacement]:
    """Swap each pair of keyword operands that differ, unless the operation commutes."""
    node = site.node
    texts = {
        name: site.source.segment(value) for name, value in keywords_of(node).items()
    }
    if texts.get("op", "").split(".")[-1] in _COMMUTATIVE:
        return
    keywords = keywords_of(node)
    for first, second in _PAIRS:
        if first not in texts or second not in texts:
            continue
        if texts[first] == texts[second]:
            continue
        swapped = copy.deepcopy(node)
        for keyword in swapped.keywords:
            if keyword.arg == first:
                keyword.value = keywords[second]
            elif keyword.arg == second:
                keyword.value = keywords[first]
        yield node, ast.unparse(swapped)


def _arguments_swapped(site: MutationSite) -> Iterator[Replacement]:
    """Swap the first two positional operands of a call that does not commute."""
    node = site.node
    is_method = isinstance(node.func, ast.Attribute)
    if is_method and called_name(node) in _ORDERED and len(node.args) > 1:
        swapped = copy.deepcopy(node)
        swapped.args[:2] = swapped.args[1::-1]
        yield node, ast.unparse(swapped)


@mutation_operator("one operand twice", ast.Call)
def _operand_twice(site: MutationSite) -> Iterator[Replacement]:
    keywords = keywords_of(site.node)
    for first, second in _PAIRS[:2]:
        if first in keywords and second in keywords:
            yield keywords[second], site.text(keywords[first])


@mutation_operator("argument dropped", ast.Call)
def _argument_dropped(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    for name in keywords_of(node):
        if name in _OPTIONAL and isinstance(node.func, ast.Attribute):
            without = copy.deepcopy(node)
            gone = ("op1", "operand1") if name in ("op1", "operand1") else (name,)
            without.keywords = [
                keyword for keyword in without.keywords if keyword.arg not in gone
            ]
            yield node, ast.unparse(without)


@mutation_operator("accumulation flag", ast.keyword)
def _accumulation(site: MutationSite) -> Iterator[Replacement]:
    if site.node.arg == "accumulate" and not isinstance(site.node.value, ast.Constant):
        yield site.node.value, "True"
        yield site.node.value, "False"


@mutation_operator("flag flipped", ast.keyword)
def _flag(site: MutationSite) -> Iterator[Replacement]:
    value = site.node.value
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        yield value, str(not value.value)


@mutation_operator("another operation", ast.Attribute)
def _another_operation(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    if isinstance(node.value, ast.Name) and node.attr in _OTHERS:
        yield node, f"{node.value.id}.{_OTHERS[node.attr]}"


@mutation_operator("dtype hard-coded", ast.keyword)
def _dtype_fixed(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    is_dtype = site.language and node.arg == "dtype"
    if is_dtype and not site.source.segment(node.value).endswith("float32"):
        yield node.value, f"{site.language}.float32"


@mutation_operator("narrower accumulation", ast.Attribute)
def _narrower(site: MutationSite) -> Iterator[Replacement]:
    compared = any(
        isinstance(parent, (ast.Assert, ast.Compare)) for parent in site.parents
    )
    if site.node.attr == "float32" and not compared:
        yield site.node, f"{site.source.segment(site.node.value)}.bfloat16"


def _loop_invariant_buffers(loop: ast.For) -> Iterator[ast.Assign]:
    """Yield the buffer allocations in a loop's body that read no name assigned in the loop."""
    assigned = bound_names(loop)
    for line in loop.body:
        if not isinstance(line, ast.Assign) or called_name(line.value) not in _BUFFERS:
            continue
        if assigned.isdisjoint(names_in(line.value)):
            yield line


@mutation_operator("buffer hoisted", ast.For)
def _hoisted(site: MutationSite) -> Iterator[Replacement]:
    loop = site.node
    source = site.source
    for line in _loop_invariant_buffers(loop):
        if "\n" in source.segment(line):
            continue
        start, end = source.span(loop)
        first, last = source.span(line)
        text = f"{source.text[start:first]}pass{source.text[last:end]}"
        yield loop, f"{source.segment(line)}\n{' ' * loop.col_offset}{text}"

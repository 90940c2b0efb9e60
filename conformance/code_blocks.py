"""Code blocks of documentation pages: found, told programs from fragments, and run.

A block is run as it stands. Where it defines kernels it is loaded like a module, and the calls that
``conformance/documented_inputs.py`` has for it are made; any other block is the body of a kernel.
A block that the page leaves incomplete does not run, and is reported with the reason.
"""

from __future__ import annotations

import ast
import builtins
import io
import linecache
import os
import re
import symtable
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from conformance.limits import limited
from conformance.outcomes import FAILED, PASSED, SKIPPED, Outcome, denial
from conformance.stand_ins import TARGET

_DIRECTIVE = re.compile(r"( *)\.\. (?:code-block|code|sourcecode)::[ \t]*(\S*)[ \t]*$")
_OPTION = re.compile(r":[\w-]+:")
_PYTHON = ("", "python", "python3")
"""Languages that a directive names for Python; the default of these pages is Python."""


@dataclass(frozen=True)
class Block:
    """A code block: its page, the line of its directive in it, and its text, dedented."""

    page: str
    line: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Call:
    """A call of a kernel that a block defines, and its expected result (None: it only has to run).

    ``cores`` is the launch grid. The kernel's result, or the argument with the index ``fills``, is
    compared as float32 and within ``tolerance``.
    """

    kernel: str
    arguments: Sequence[Any]
    expected: Any = None
    cores: int = 1
    tolerance: float = 1e-5
    fills: int | None = None


@dataclass(frozen=True)
class Inputs:
    """Facts from a page's prose that a block needs to run.

    Attributes
    ----------
    names : values of the block's free names. Arrays become tensors in HBM.
    setup : Python that runs before the block, in the same kernel.
    expected : values that arrays among ``names`` hold afterwards.
    calls : of the kernels that the block defines.
    raises : the block shows a misuse: a part of the error's text.
    fault : error of the block itself, which its outcome names.
    saved_as : the page says to save the block under this name, and later blocks import it.
    machine : name of the machine that it runs on.
    """

    names: Mapping[str, Any] = field(default_factory=dict)
    setup: str = ""
    expected: Mapping[str, Any] = field(default_factory=dict)
    calls: Sequence[Call] = ()
    raises: str = ""
    machine: str = "trn2"
    saved_as: str = ""
    fault: str = ""


class Fragment(Exception):
    """The block cannot be run, and why."""


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Return the Python blocks of a page in reStructuredText, or of a module's docstrings."""
    lines = text.expandtabs().splitlines()
    at = 0
    while at < len(lines):
        found = _DIRECTIVE.match(lines[at])
        at += 1
        if not found:
            continue
        start = at
        indent = len(found[1])
        while at < len(lines) and (
            not lines[at].strip() or _indent(lines[at]) > indent
        ):
            at += 1
        if found[2] in _PYTHON:
            body = [line for line in lines[start:at] if not _OPTION.match(line.strip())]
            code = textwrap.dedent("\n".join(body)).strip("\n")
            # The last block of a docstring carries the quotes that end it.
            yield Block(page, start, re.sub(r'"""$', "", code) + "\n")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def tree_of(block: Block) -> ast.Module:
    """Return the block's syntax tree.

    Raises
    ------
    Fragment : the block is not Python, or leaves parts out with ``...``.
    """
    try:
        tree = ast.parse(block.text, block.name)
    except SyntaxError:
        raise Fragment("it is no program: Python does not parse it") from None
    indices = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        for part in ast.walk(node.slice)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and node.value is ...
            and id(node) not in indices
        ):
            raise Fragment("it leaves parts out (...)")
    if not tree.body:
        raise Fragment("it has no statement")
    return tree


def free_names(text: str) -> set[str]:
    """Names that a module's text uses and nothing in it binds, builtins left out."""
    top = symtable.symtable(text, "block", "exec")
    bound = {
        one.get_name()
        for one in top.get_symbols()
        if one.is_assigned() or one.is_imported()
    }
    used = {one.get_name() for one in top.get_symbols() if one.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        used |= {one.get_name() for one in table.get_symbols() if one.is_global()}
        tables += table.get_children()
    return used - bound - set(dir(builtins))


def is_module(tree: ast.Module) -> bool:
    """Return whether a block is a module: only definitions, or kernels defined or run."""
    return _is_all_definitions(tree) or any(
        isinstance(node, ast.Attribute)
        and node.attr in ("jit", "simulate")
        and isinstance(node.value, ast.Name)
        and node.value.id == "nki"
        for node in ast.walk(tree)
    )


def _is_all_definitions(tree: ast.Module) -> bool:
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return all(isinstance(node, kinds) for node in tree.body)


class _Asserts(ast.NodeTransformer):
    """``assert nl.equal(x, y)`` says that all elements are equal; a tile itself is not true."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        if isinstance(node.test, ast.Call):
            every = ast.Name("every_element", ast.Load())
            node.test = ast.Call(every, [node.test], [])
        return ast.fix_missing_locations(ast.copy_location(node, node))


def every_element(value: Any) -> bool:
    """Return whether no element of a tile is 0, or the truth of another value."""
    return bool(np.all(value.values())) if hasattr(value, "values") else bool(value)


class Page:
    """The blocks of a page, each run after the earlier blocks that define its names.

    Parameters
    ----------
    blocks : in the order of the page.
    inputs : by the line of the block; those of line 0 have names for all.
    prelude : makes the names that the pages take for granted, such as ``nl``.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        inputs: Mapping[int, Inputs],
        prelude: Callable[[], dict[str, Any]],
    ) -> None:
        self.blocks = blocks
        self.inputs = inputs
        self.prelude = prelude

    def outcomes(self, seconds: float) -> list[Outcome]:
        """Return the outcome of each block, which may take ``seconds``."""
        return [self._outcome(block, seconds) for block in self.blocks]

    def _outcome(self, block: Block, seconds: float) -> Outcome:
        wanted = self.inputs.get(block.line, Inputs())
        try:
            with limited(seconds, "it"), _quietly() as printed, self._saved(block):
                self._run(block, wanted)
            denied = denial(printed.getvalue())
            assert not denied, denied
        except Fragment as reason:
            return Outcome(block.page, block.name, SKIPPED, str(reason))
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            if wanted.raises and wanted.raises in text:
                return Outcome(block.page, block.name, PASSED)
            if wanted.fault:
                text = f"{wanted.fault}: {text}"
            return Outcome(block.page, block.name, FAILED, text)
        if wanted.raises:
            return Outcome(
                block.page, block.name, FAILED, f"it did not raise {wanted.raises!r}"
            )
        return Outcome(block.page, block.name, PASSED)

    def _run(self, block: Block, wanted: Inputs) -> None:
        os.environ[TARGET] = wanted.machine
        tree = tree_of(block)
        common = self.inputs.get(0, Inputs())
        names = {**common.names, **wanted.names}
        setup = wanted.setup or common.setup
        arrays = {
            name: value.copy() for name, value in names.items() if _is_array(value)
        }
        space = self.prelude() | names | arrays
        needed = self._needed(block, {*space, *_bound(setup)})
        code = [_compiled(one) for one in (*needed, Block("setup", 0, setup), block)]
        if is_module(tree) or any(map(self._runs_a_saved_block, (block, *needed))):
            _execute(code, space)
            if _is_all_definitions(tree) and not wanted.calls:
                raise Fragment("it was loaded; the page gives its functions no inputs")
            _call(space, wanted.calls)
            return

        def code_block(**tensors: Any) -> None:
            _execute(code, space | tensors)

        space["nki"].simulate(code_block)(**arrays)
        for name, expected in wanted.expected.items():
            compare(arrays[name], expected)

    def _runs_a_saved_block(self, block: Block) -> bool:
        """Return whether a block imports a block that the page saves; it then calls kernels."""
        names = {one.saved_as for one in self.inputs.values() if one.saved_as}
        imports = [
            one
            for one in ast.walk(ast.parse(block.text))
            if isinstance(one, ast.ImportFrom)
        ]
        return any(one.module in names for one in imports)

    @contextmanager
    def _saved(self, block: Block) -> Iterator[None]:
        """Make the modules that the page saved before ``block`` importable within the block."""
        before = dict(sys.modules)
        for one in self.blocks:
            name = self.inputs[one.line].saved_as if one.line in self.inputs else ""
            if name and one.line < block.line:
                sys.modules[name] = ModuleType(name)
                vars(sys.modules[name]).update(self.prelude())
                exec(_compiled(one), vars(sys.modules[name]))
        try:
            yield
        finally:
            for name in set(sys.modules) - set(before):
                if name in {one.saved_as for one in self.inputs.values()}:
                    del sys.modules[name]

    def _needed(self, block: Block, known: set[str]) -> list[Block]:
        """Return the blocks before ``block`` that bind the names it needs, in the page's order.

        Raises
        ------
        Fragment : the page binds no such name.
        """
        needed: list[Block] = []
        missing = free_names(block.text) - known
        for one in reversed([one for one in self.blocks if one.line < block.line]):
            if missing & _bound(one.text):
                needed.insert(0, one)
                missing = (missing - _bound(one.text)) | (free_names(one.text) - known)
        if missing:
            first, *more = sorted(missing)
            others = f" and {len(more)} more" if more else ""
            raise Fragment(f"it uses what the page does not define: {first}{others}")
        return needed


def _bound(text: str) -> set[str]:
    """Return the names that a module's text binds; none if Python cannot run it."""
    try:
        tree_of(Block("", 0, text))
    except Fragment:
        return set()
    top = symtable.symtable(text, "block", "exec")
    return {
        one.get_name()
        for one in top.get_symbols()
        if one.is_assigned() or one.is_imported()
    }


def _compiled(block: Block) -> CodeType:
    """Return the block's code; its lines are kept where errors and tracebacks look for them."""
    tree = _Asserts().visit(ast.parse(block.text, block.name))
    lines = block.text.splitlines(keepends=True)
    linecache.cache[block.name] = (len(block.text), None, lines, block.name)
    return compile(tree, block.name, "exec")


def _execute(code: Sequence[CodeType], space: dict[str, Any]) -> None:
    space |= {"__name__": "__main__", "every_element": every_element}
    for one in code:
        exec(one, space)


def _call(space: Mapping[str, Any], calls: Sequence[Call]) -> None:
    """Call the kernels that a block defined, and compare their results."""
    for call in calls:
        simulation = space["nki"].simulate(space[call.kernel])
        arguments = [
            value.copy() if _is_array(value) else value for value in call.arguments
        ]
        returned = simulation[call.cores](*arguments)
        if call.expected is not None:
            found = returned if call.fills is None else arguments[call.fills]
            compare(found, call.expected, call.tolerance)


def compare(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Assert that an array, or each array of a tuple, equals the expected one."""
    if isinstance(expected, tuple):
        assert len(actual) == len(expected), (
            f"{len(actual)} outputs, not {len(expected)}"
        )
        for one, other in zip(actual, expected, strict=True):
            compare(one, other, tolerance)
        return
    np.testing.assert_allclose(
        np.asarray(actual, np.float32),
        np.asarray(expected, np.float32),
        tolerance,
        tolerance,
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


@contextmanager
def _quietly() -> Iterator[io.StringIO]:
    """Yield the stream of a block's output; undo its warnings and changes of the environment."""
    environment = dict(os.environ)
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield printed
        finally:
            os.environ.clear()
            os.environ.update(environment)

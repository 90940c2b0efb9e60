"""Check a file, a trace or a kernel against the rules for an SDK and a machine."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from difftest.analysis.finding import (
    Finding,
    Severity,
    Suppression,
    is_suppressed,
    suppressions_in,
)
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Location, Trace
from difftest.support.internal_errors import internal_error_scope
from difftest.tools.lint.classic import HAZARDS
from difftest.tools.lint.fixes import REWRITES, fix_of, fix_of_comment
from difftest.tools.lint.rule import (
    RULES,
    Confidence,
    Group,
    Release,
    Rule,
    of_level,
    rule,
    sdk_of,
)
from difftest.tools.lint.source import UNREADABLE, Fix, Source, TextRange
from difftest.tools.syntax import names_in

# The import of a module registers its rules.
for _name in ("language", "classic", "upgrade", "trace_rules"):
    import_module(f"difftest.tools.lint.{_name}")
rule("NKX001", group=Group.PORTABILITY)(lambda node, at: ())  # found by lint_source


@dataclass(frozen=True, order=True)
class Diagnostic:
    """A place where a rule is broken. ``repair`` computes its fix."""

    path: str
    region: TextRange
    id: str
    happened: str
    repair: Callable[[], Fix | None] = field(
        default=lambda: None, compare=False, repr=False
    )

    @property
    def line(self) -> int:
        """The first line, from 1."""
        return self.region.line

    @cached_property
    def fix(self) -> Fix | None:
        """The fix, or None if the code has to be changed by hand."""
        return self.repair()

    @property
    def place_fix(self) -> Fix | None:
        """The fix of this place alone. None for a fix that rewrites the whole file.

        Rewriting a file takes seconds. Only ``--fix``, ``--diff`` and ``difftest migrate`` do it.
        """
        return None if self.id in REWRITES else self.fix

    @property
    def rule(self) -> Rule:
        return rules()[self.id]

    @property
    def text(self) -> str:
        """The event, the rule and the remedy in one line."""
        return f"{self.happened}: {self.rule.rule}; {self.rule.remedy}"


@cache
def rules() -> dict[str, Rule]:
    """Return all rules by id, sorted."""
    return dict(sorted(RULES.items()))


def lint_source(
    source: Source, sdk: Release, target: str | None = None, ids: Collection[str] = ()
) -> list[Diagnostic]:
    """Return the diagnostics of a file, in file order.

    Parameters
    ----------
    sdk : the SDK whose rules are checked.
    target : a machine. None for the rules of all machines.
    ids : the ids of the rules to check. Empty for all rules.
    """
    active = _active_rules(sdk, target, ids)
    comments = suppressions_in(source.text)
    diagnostics: set[Diagnostic] = set()
    used: set[tuple[Suppression, str]] = set()
    for entry in _source_diagnostics(source, sdk, active):
        matching = [it for it in comments if it.applies_to(entry.id, entry.line)]
        used.update((comment, entry.id) for comment in matching)
        if not matching:
            diagnostics.add(entry)
    checked = {check.id for check in active}
    for comment, id in _suppressed_ids(comments, checked):
        if (comment, id) not in used:
            diagnostics.add(_unused_suppression(source, comment, id))
    return sorted(diagnostics)


def _suppressed_ids(
    comments: Iterable[Suppression], checked: Collection[str]
) -> Iterator[tuple[Suppression, str]]:
    """Yield each comment with each of its ids that was checked or that no rule has."""
    for comment in comments:
        for id in comment.ids:
            if id in checked or id not in rules():
                yield comment, id


def _source_diagnostics(
    source: Source, sdk: Release, active: Iterable[Rule]
) -> Iterator[Diagnostic]:
    by_node: dict[type[ast.AST], list[Rule]] = {}
    for check in active:
        for kind in check.nodes:
            by_node.setdefault(kind, []).append(check)
    for node, place in source.nodes(sdk):
        for check in by_node.get(type(node), ()):
            with internal_error_scope(f"the rule {check.id} on {source.path}"):
                for at, happened in check.check(node, place):
                    region = source.region(*source.span(at))
                    repair = partial(fix_of, check.id, at, place)
                    yield Diagnostic(
                        str(source.path), region, check.id, happened, repair
                    )


def _unused_suppression(source: Source, comment: Suppression, id: str) -> Diagnostic:
    """Return the diagnostic for a comment that suppresses no finding."""
    region = TextRange(comment.line, comment.column, comment.line, comment.column + 1)
    repair = partial(fix_of_comment, source, comment, id)
    return Diagnostic(
        str(source.path), region, "NKX001", f"ignore[{id}] suppresses nothing", repair
    )


def lint_trace(
    trace: Trace, sdk: Release | None = None, ids: Collection[str] = ()
) -> list[Diagnostic]:
    """Return what the compiler of its machine would reject in a launch, once per line and rule.

    Parameters
    ----------
    sdk : the SDK. None for the newest of the kernel's dialect.
    ids : the ids of the rules to check. Empty for all rules.
    """
    diagnostics: dict[tuple[str, Location], Diagnostic] = {}
    for id, at, happened in _trace_breaches(trace, sdk or sdk_of(trace), ids):
        if (id, at) not in diagnostics and not is_suppressed(id, at):
            for call in at.calls:
                happened += f", called at {call.file}:{call.line}"
            region = TextRange(at.line, 1, at.line, 1 + len(at.text))
            diagnostics[id, at] = Diagnostic(at.file, region, id, happened)
    return sorted(diagnostics.values())


def _trace_breaches(
    trace: Trace, sdk: Release, ids: Collection[str]
) -> Iterator[tuple[str, Location, str]]:
    machine = MACHINES[trace.machine]
    for check in _trace_rules(sdk, machine.name, frozenset(ids)):
        with internal_error_scope(f"the rule {check.id}"):
            for at, happened in check.reader(trace, machine):
                if at.location is not None:
                    yield check.id, at.location, happened


@lru_cache(maxsize=64)
def _trace_rules(sdk: Release, target: str, ids: frozenset[str]) -> list[Rule]:
    """Return the rules to check on a trace. The cache is for tests: each case has a trace."""
    return _active_rules(sdk, target, ids, reads_traces=True)


def _active_rules(
    sdk: Release, target: str | None, ids: Collection[str], reads_traces: bool = False
) -> list[Rule]:
    """Return the rules to check. Empty ``ids`` name all rules."""
    chosen = [check for id, check in rules().items() if id in ids or not ids]
    readers = [check for check in chosen if check.reads_traces is reads_traces]
    return [check for check in readers if check.holds(sdk, target)]


_DETECTED = ("NKI521", "NKI544")
"""Trace rules that the detectors partition-start and program-trip-counts also report."""


def findings_of(
    kernel: Callable[..., Any], level: str | None = None, trace: Trace | None = None
) -> tuple[Finding, ...]:
    """Return findings for the rules that a kernel and its functions in the same file break.

    The kernel has run on the simulator, so each finding is a warning. Findings about performance
    or announced changes are notes. Hazards are excluded, because detectors find them in the trace.
    A kernel without source has no findings of source rules.

    Parameters
    ----------
    level : the NKI level. None for the newest of the kernel's dialect.
    trace : the trace of the kernel's run, for the trace rules.
    """
    function = inspect.unwrap(kernel)
    code = getattr(function, "__code__", None)
    findings: tuple[Finding, ...] = ()
    if code is not None:
        text = "".join(linecache.getlines(code.co_filename))
        findings = _findings(code.co_filename, text, function.__name__, level)
    if trace is None:
        return findings
    diagnostics = lint_trace(trace, sdk_of(trace, level))
    return findings + tuple(
        _finding(entry) for entry in diagnostics if entry.id not in _DETECTED
    )


@lru_cache(maxsize=256)
def _findings(
    file: str, text: str, name: str, level: str | None
) -> tuple[Finding, ...]:
    try:
        source = Source(Path(file), text, (name,))
    except UNREADABLE:
        return ()
    lines: set[int] = set()
    for node in source.reached(source.functions.get(name, ())):
        lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
    diagnostics = lint_source(source, of_level(level) or source.sdk)
    return tuple(
        _finding(entry)
        for entry in diagnostics
        if entry.line in lines and entry.id not in HAZARDS
    )


def _finding(diagnostic: Diagnostic) -> Finding:
    rule = diagnostic.rule
    is_note = rule.group is Group.PERFORMANCE or rule.confidence is Confidence.ANNOUNCED
    return Finding(
        id=rule.id,
        severity=Severity.NOTE if is_note else Severity.WARNING,
        happened=diagnostic.happened,
        rule=rule.rule,
        locations=(Location(diagnostic.path, diagnostic.line),),
        remedy=rule.remedy,
    )


def unused_helpers(kernel: Callable[..., Any]) -> list[Finding]:
    """Return a finding for each function that no kernel of the kernel's module uses.

    The list is empty if the source code is not available.
    """
    function = inspect.unwrap(kernel)
    module = inspect.getmodule(function)
    file = inspect.getsourcefile(function)
    if module is None or file is None:
        return []
    source = Source(Path(file), inspect.getsource(module))
    return [
        Finding(
            id="unused-helper",
            severity=Severity.NOTE,
            locations=(Location(file, node.lineno),),
            happened=f"{node.name} is defined and never called by the module's kernels",
            rule="a kernel's module holds what its kernels use",
            remedy="call it where the kernel does the same by hand, or remove it",
        )
        for node in _unused_functions(source, function.__name__)
    ]


def _unused_functions(source: Source, kernel: str) -> list[ast.FunctionDef]:
    """Return the functions of a module that use NKI, and that no kernel of the module reaches."""
    own = [node for node in source.tree.body if isinstance(node, ast.FunctionDef)]
    language = _names_of_the_language(source.tree)
    kernels = [node for node in own if node.decorator_list or node.name == kernel]
    unused = set(own) - source.reached(kernels)
    return [node for node in own if node in unused and language & names_in(node)]


def _names_of_the_language(tree: ast.Module) -> set[str]:
    """Return the names that a module gives to NKI's modules and functions."""
    names: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = node.module if isinstance(node, ast.ImportFrom) else None
        for alias in node.names:
            if (module or alias.name).partition(".")[0] in ("nki", "neuronxcc"):
                names.add(alias.asname or alias.name.partition(".")[0])
    return names

"""Kernel tests of a dialect that the backends of a session do not run.

An SDK may have only one dialect of NKI. Test files that import the other dialect are still
collected. If all backends reject a kernel, it is left out, and the summary counts it with the
reason. A backend that cannot run any kernel is a usage error.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from difftest.support.wording import count_of
from difftest.testing.session.collection import explicit_checks, holds_kernel_tests
from difftest.testing.session.options import SESSION, Session

if TYPE_CHECKING:
    from difftest.testing.backends.base import Backend
    from difftest.testing.backends.sdk import SdkProbe
    from difftest.testing.contract.spec import KernelSpec
    from difftest.testing.harness.decorated import KernelTest

SPEC = pytest.StashKey["KernelSpec"]()
"""The spec of an item that tests a kernel."""


class LeftOut(NamedTuple):
    """A kernel that a backend does not run.

    Attributes
    ----------
    backend : name of the backend.
    dialect : package that the kernel imports.
    kernel : module and name of the kernel.
    test : node id of the test, without parameters.
    is_whole_test : whether the backend runs no other kernel of the test either.
    reason : text of the backend's error for the kernel.
    """

    backend: str
    dialect: str
    kernel: str
    test: str
    is_whole_test: bool
    reason: str


def collected_without(
    collector: pytest.Collector, report: pytest.CollectReport
) -> pytest.CollectReport:
    """Collect a module again if its import failed for lack of one dialect of NKI.

    The first attempt uses the installed dialect alone: a file that tries one dialect and then the
    other gets the installed one.
    """
    absent = _absent_dialect(collector, report)
    if absent is None:
        return report
    from difftest.testing.backends.absent import importable

    _forget_module(collector.path)
    with importable(absent):
        again: pytest.CollectReport = collector.ihook.pytest_make_collect_report(
            collector=collector
        )
    return again


def _absent_dialect(
    collector: pytest.Collector, report: pytest.CollectReport
) -> SdkProbe | None:
    """Return the dialect whose lack stopped the import of a module; else None."""
    excinfo = getattr(getattr(report, "call", None), "excinfo", None)
    if not isinstance(collector, pytest.Module) or excinfo is None:
        return None
    missing = getattr(excinfo.value.__cause__, "name", None) or ""
    root = missing.partition(".")[0]
    if root not in ("neuronxcc", "nki") or not holds_kernel_tests(collector.path):
        return None
    from difftest.testing.backends.absent import absent_in
    from difftest.testing.backends.sdk import PACKAGES, detect_sdk

    absent = absent_in(detect_sdk())
    if absent is None:
        return None
    package = PACKAGES[absent.dialect]
    is_other = root != package.partition(".")[0]
    return None if is_other or package in sys.modules else absent


def _forget_module(path: Path) -> None:
    """Remove a half-imported module, which pytest keeps, from the imported modules."""
    file = str(path)
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == file:
            del sys.modules[name]


def with_explicit_checks(
    items: list[Any],
    collector: pytest.Module | pytest.Class,
    name: str,
    function: object,
    test: KernelTest,
) -> list[Any]:
    """Return the items of a decorated function and of its explicit checks."""
    session = collector.config.stash[SESSION]
    if session.request.case is None:
        backends = session.runner.backends if session.runner else ()
        marks = list(getattr(function, "pytestmark", ()))
        for check in explicit_checks(test, marks, backends):
            added = collector.ihook.pytest_pycollect_makeitem(
                collector=collector, name=name, obj=check
            )
            for item in added:
                # pytest looks the name up and finds the test itself.
                item.obj = check
            items += added
    for item in items:
        item.stash[SPEC] = test.spec
    return items


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests whose kernels run on no backend, and record each kernel left out."""
    session = config.stash[SESSION]
    if session.runner is None:
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        spec = item.stash.get(SPEC, None)
        if spec is None or _has_backend(session, session.runner.backends, item, spec):
            kept.append(item)
        else:
            left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def _has_backend(
    session: Session, backends: Iterable[Backend], item: pytest.Item, spec: KernelSpec
) -> bool:
    """Return whether a backend runs a kernel of a test; record the kernels that each leaves out."""
    node = item.nodeid.partition("[")[0]
    serving = set()
    for backend in backends:
        rows = list(_left_out(spec, backend, node))
        session.left_out.update(rows)
        if not any(row.is_whole_test for row in rows):
            serving.add(backend.name)
    session.served.update(serving)
    return bool(serving)


def _left_out(spec: KernelSpec, backend: Backend, test: str) -> Iterator[LeftOut]:
    """Yield the kernels of a test that a backend does not run."""
    from difftest.support.signature import function_name, module_name
    from difftest.testing.backends.sdk import PACKAGES, dialect_of, refusal_of

    kernels = (spec.kernel, *spec.others)
    refusals = [refusal_of(backend, kernel) for kernel in kernels]
    is_whole_test = all(refusal is not None for refusal in refusals)
    for kernel, refusal in zip(kernels, refusals, strict=True):
        if refusal is not None:
            dialect = PACKAGES[str(dialect_of(kernel))]
            name = f"{module_name(kernel)}.{function_name(kernel)}"
            yield LeftOut(
                backend=backend.name,
                dialect=dialect,
                kernel=name,
                test=test,
                is_whole_test=is_whole_test,
                reason=str(refusal),
            )


def idle_backends_error(config: pytest.Config) -> str:
    """Return the usage error of backends that cannot run any kernel, or empty text."""
    session = config.stash[SESSION]
    reasons = {
        row.backend: row.reason
        for row in session.left_out
        if row.backend not in session.served
    }
    texts = [
        f"{name} was requested, but cannot run any of the tested kernels: {reason}"
        for name, reason in sorted(reasons.items())
    ]
    return "\n".join(texts)


class MissingDialect(NamedTuple):
    """Kernels of one dialect that one backend does not run.

    Attributes
    ----------
    backend, dialect : name of the backend; package that the kernels import.
    kernels : modules and names.
    tests : node ids of the tests without a kernel that the backend runs.
    reason : text of the backend's error for them.
    """

    backend: str
    dialect: str
    kernels: list[str]
    tests: list[str]
    reason: str


def groups_of(rows: Collection[LeftOut]) -> list[MissingDialect]:
    """Return the kernels left out, grouped by backend and dialect, sorted."""
    groups: defaultdict[tuple[str, str, str], list[LeftOut]] = defaultdict(list)
    for row in sorted(rows):
        groups[row.backend, row.dialect, row.reason].append(row)
    return [
        MissingDialect(
            backend,
            dialect,
            kernels=sorted({row.kernel for row in group}),
            tests=sorted({row.test for row in group if row.is_whole_test}),
            reason=reason,
        )
        for (backend, dialect, reason), group in groups.items()
    ]


def left_out_lines(rows: Collection[LeftOut], *, verbose: bool) -> Iterator[str]:
    """Yield the lines of the summary: for each backend and dialect the count and the reason."""
    for group in groups_of(rows):
        text = f"{count_of(len(group.kernels), 'kernel')} of {group.dialect}"
        if group.tests:
            verb = "need" if len(group.tests) > 1 else "needs"
            text += f", with {count_of(len(group.tests), 'test')} that {verb} them"
        yield f"left out on {group.backend}: {text}"
        yield from group.reason.splitlines()[1:]
        if verbose:
            for kernel in group.kernels:
                yield f"  kernel: {kernel}"


def as_plain(rows: Collection[LeftOut]) -> list[tuple[Any, ...]]:
    """Return rows as plain tuples, which pytest-xdist can send from a worker."""
    return [tuple(row) for row in sorted(rows)]

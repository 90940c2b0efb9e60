"""Collect kernel tests that a command line names, by pytest: with its rootdir and conftests.

So the imports of a test work as under pytest, in a src layout and relative imports too.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import click
import pytest

from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.decorated import kernel_test_of
from difftest.testing.host.naming import suggest_names
from difftest.testing.session.options import Request, extra_arguments

Result = TypeVar("Result")
Specs: TypeAlias = dict[str, KernelSpec]
"""Specs by the ids of their tests in pytest."""
_QUIET = [
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "-p",
    "no:unraisableexception",
]
"""Imported modules cannot be rewritten any more. No test runs, so garbage need not be collected."""


class _Collector(Generic[Result]):
    """A pytest plugin that collects tests and, in place of running them, uses their specs."""

    difftest_request = Request("embedded", False, None, ())
    """The request of the session, which overrides its command line and its ini file."""

    def __init__(self, names: Sequence[str], use: Callable[[Specs], Result]) -> None:
        self.wanted = {name: name.partition("::") for name in names}
        self.use = use
        self.specs: dict[str, Specs] = {name: {} for name in names}
        self.results: list[Result] = []
        self.errors: list[BaseException] = []
        self.names: set[str] = set()

    def pytest_load_initial_conftests(
        self, early_config: pytest.Config, args: list[str]
    ) -> None:
        """Turn off the workers of pytest-xdist."""
        if early_config.pluginmanager.hasplugin("xdist"):
            extra_arguments(args, "-n", "0")

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Block Hypothesis's plugin, which reads each imported module; drawing reads them later."""
        session.config.pluginmanager.set_blocked("hypothesispytest")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store the error of a module that cannot be collected."""
        if report.failed:
            text = f"{report.nodeid} cannot be collected:\n{report.longreprtext}"
            self.errors.append(click.ClickException(text))

    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector, name: str, obj: Any
    ) -> None:
        """Store a spec that a module defines under a requested name."""
        if isinstance(obj, KernelSpec):
            self._keep(collector.path, f"{collector.nodeid}::{name}", obj)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Use the specs, and run no test."""
        if self.errors:
            return True
        for item in session.items:
            test = kernel_test_of(getattr(item, "obj", None))
            if test is not None:
                self.names.add(getattr(item, "originalname", item.name))
                node = item.nodeid.partition("[")[0]
                self._keep(item.path, node, test.spec, every=True)
        try:
            self.results.append(self.use(self._named_specs()))
        except BaseException as error:  # raised again where the command can show it
            self.errors.append(error)
        return True

    def _named_specs(self) -> Specs:
        """Return all requested specs; raise a UsageError for a name without one."""
        named: Specs = {}
        for name, specs in self.specs.items():
            if not specs:
                place, _, own = self.wanted[name]
                text = f" {own!r}{suggest_names(own, self.names)}" if own else ""
                raise click.UsageError(f"{place} has no kernel test{text}")
            named.update(specs)
        return named

    def _keep(
        self, file: Path, node: str, spec: KernelSpec, *, every: bool = False
    ) -> None:
        """Store a requested spec: by its name, or ``every`` spec of the file or folder."""
        for name, (place, _, own) in self.wanted.items():
            is_wanted = own == node.rpartition("::")[2] if own else every
            if is_wanted and file.is_relative_to(Path(place).resolve()):
                self.specs[name][node] = spec


def with_spec(name: str, use: Callable[[KernelSpec], Result]) -> Result:
    """Call ``use`` with the spec of ``PATH::TEST``, and return its result.

    The embedded modules are installed during the call.
    """
    if "::" not in name and Path(name).is_file():
        raise click.UsageError(f"a kernel test is named PATH::TEST; got {name}")
    return with_specs((name,), lambda specs: use(*specs.values()))


def with_specs(names: Sequence[str], use: Callable[[Specs], Result]) -> Result:
    """Call ``use`` with all named specs, and return its result.

    Names are files and folders of tests, PATH::TEST and PATH::SPEC.
    """
    places = dict.fromkeys(name.partition("::")[0] for name in names)
    for place in places:
        if not Path(place).exists():
            raise click.UsageError(f"no file at {place}")
    collector = _Collector(names, use)
    printed = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
        pytest.main([*places, "-s", *_QUIET], plugins=[collector])
    for error in collector.errors:
        raise error
    if not collector.results:
        text = printed.getvalue().strip() or "it has no test"
        raise click.ClickException(f"{', '.join(places)} cannot be collected:\n{text}")
    return collector.results[0]

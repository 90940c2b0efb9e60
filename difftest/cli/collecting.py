"""Kernel tests named on the command line, as pytest finds them: its rootdir, paths and conftests.

So what a test imports is what it imports under pytest, in a src layout and relatively too.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
import pytest

from difftest.harness.decorator import KernelTest, kernel_test_of
from difftest.harness.spec import KernelSpec
from difftest.host.naming import others
from difftest.plugin.options import Request, in_one_process

Result = TypeVar("Result")
_QUIET = "ignore::pytest.PytestAssertRewriteWarning"
"""What was imported for this command cannot be rewritten any more, and is not to be."""


class _Collector(Generic[Result]):
    """A pytest plugin that collects, and instead of running tests uses the spec of the one."""

    difftest_request = Request("embedded", False, None, ())
    """What the session was asked for, whatever its command line and its ini file say."""

    def __init__(self, name: str, use: Callable[[KernelSpec], Result]) -> None:
        self.name = name
        self.use = use
        self.results: list[Result] = []
        self.errors: list[BaseException] = []
        self.names: set[str] = set()

    def pytest_load_initial_conftests(self, early_config: pytest.Config, args: list[str]) -> None:
        """No workers of pytest-xdist."""
        if early_config.pluginmanager.hasplugin("xdist"):
            in_one_process(args)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what kept a module from being collected."""
        if report.failed:
            text = f"{report.nodeid} cannot be collected:\n{report.longreprtext}"
            self.errors.append(click.ClickException(text))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Use the spec; run nothing."""
        if self.errors:
            return True
        tests: dict[int, KernelTest] = {}
        for item in session.items:
            test = kernel_test_of(getattr(item, "obj", None))
            if test is not None:
                tests[id(test)] = test
                self.names.add(getattr(item, "originalname", item.name))
        try:
            if len(tests) != 1:
                raise click.UsageError(
                    f"{self.name} names {len(tests)} kernel tests; accepted: one, as PATH::TEST"
                )
            (test,) = tests.values()
            self.results.append(self.use(test.spec))
        except BaseException as error:  # raised anew where the command can show it
            self.errors.append(error)
        return True


def with_spec(name: str, use: Callable[[KernelSpec], Result]) -> Result:
    """What ``use`` makes of the spec of the kernel test named ``PATH::TEST``.

    The embedded modules are in place, and ``sys.path`` is as pytest has it.
    """
    path, _, test = name.partition("::")
    if not Path(path).is_file():
        raise click.UsageError(f"no file at {path}")
    if not test:
        raise click.UsageError(f"a kernel test is named PATH::TEST; got {name}")
    collector = _Collector(name, use)
    code, said = _collect(collector)
    for error in collector.errors:
        raise error
    if collector.results:
        return collector.results[0]
    if code != pytest.ExitCode.USAGE_ERROR:
        raise click.ClickException(f"{path} cannot be collected:\n{said}")
    everything = _Collector(path, lambda spec: None)
    _collect(everything)
    raise click.UsageError(f"{path} has no kernel test {test!r}{others(test, everything.names)}")


def _collect(collector: _Collector[Any]) -> tuple[int, str]:
    """Let pytest collect what is named; its exit code, and what it said of errors."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = pytest.main([collector.name, "-s", "-W", _QUIET], plugins=[collector])
    return code, said.getvalue().strip()

"""The hooks of the pytest plugin.

When it is loaded, the module imports the standard library and pytest alone, so that a session
without a backend loads nothing else. Options and their ini keys are in
:mod:`difftest.testing.session.options`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from difftest.testing.harness.runner import Runner
    from difftest.testing.session.options import Session


def _session(config: pytest.Config) -> Session:
    """Return the plugin's state of this session."""
    from difftest.testing.session.options import SESSION

    return config.stash[SESSION]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ini keys; options follow when other plugins have declared theirs."""
    from difftest.testing.session.options import add_keys

    add_keys(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Install the embedded modules before any conftest or test imports a kernel."""
    from difftest.plugin.startup import start_around_conftests

    return (yield from start_around_conftests(early_config, parser, args))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return lines that name the backends, and options that other plugins have taken."""
    from difftest.testing.session.options import taken_line

    session = _session(config)
    backends = session.runner.backends if session.runner else ()
    lines = [f"difftest: {backend.description}" for backend in backends]
    if session.request.taken:
        lines.append(taken_line(session.request.taken))
    return lines


@pytest.fixture(scope="session")
def difftest_runner(request: pytest.FixtureRequest) -> Runner:
    """Return the runner of the session's backends."""
    runner = _session(request.config).runner
    if runner is None:
        pytest.fail(
            "kernel tests need a backend: --simulate or --device", pytrace=False
        )
    return runner


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[Any], list[Any]]:
    """Skip modules of kernel tests, without importing them, if no backend is requested."""
    collectors = yield
    session = _session(parent.config)
    if session.request.wants_backends or not any(collectors):
        return collectors
    from difftest.plugin.session import make_importable
    from difftest.testing.session.collection import (
        UncollectedModule,
        holds_kernel_tests,
        holds_other_tests,
    )

    if not holds_kernel_tests(file_path):
        return collectors
    if holds_other_tests(file_path):
        make_importable(parent.config)
        session.mixed.update(collector.nodeid for collector in collectors)
        return collectors
    return [UncollectedModule.from_parent(parent, path=file_path)]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, Any, Any]:
    """Collect a module whose dialect is missing, and report a module that ends the program."""
    session = _session(collector.config)
    if not session.request.wants_backends and collector.nodeid not in session.mixed:
        return (yield)
    from difftest.plugin.dialects import collected_without
    from difftest.testing.contract.limits import exit_of

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "_exit", exit_of(os.getpid()))
            report = yield
            return collected_without(collector, report)
    except SystemExit:
        text = f"{collector.nodeid} ends the program:\n{traceback.format_exc(limit=-1)}"
        return pytest.CollectReport(collector.nodeid, "failed", text, [])


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Generator[None, Any, Any]:
    """Add a test for each explicit case and rejection of a kernel test.

    Without a backend, leave the kernel tests out of a module that has other tests too.
    """
    items = yield
    session = _session(collector.config)
    is_mixed = collector.nodeid in session.mixed
    if not items or not (session.request.wants_backends or is_mixed):
        return items
    from difftest.plugin.dialects import with_explicit_checks
    from difftest.testing.harness.decorated import kernel_test_of

    test = kernel_test_of(obj)
    if test is None:
        return items
    if not session.request.wants_backends:
        session.uncollected.add(collector.nodeid)
        return []
    return with_explicit_checks(items, collector, name, obj, test)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out kernels that no backend runs; with ``--case``, keep the one kernel test.

    It is a usage error if another plugin took the option of a requested backend, or if a backend
    runs none of the kernels.
    """
    from difftest.plugin.dialects import leave_out
    from difftest.plugin.session import select_case, usage_error

    leave_out(config, items)
    wrong = usage_error(config)
    is_worker = hasattr(config, "workerinput")  # a worker reports it to the controller
    if wrong and not is_worker:
        raise pytest.UsageError(wrong)
    text = _session(config).request.case
    if text is not None:
        select_case(config, items, text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Inspect the launches of a test that calls kernels itself, with its fixtures."""
    session = _session(item.config)
    if session.launches is None:
        return (yield)
    from difftest.plugin.launches import inspecting, is_inspected

    if not is_inspected(item, session):
        return (yield)
    with inspecting(item, session):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a kernel test with the session's runner, and fail a test that compares nothing.

    A test that calls kernels itself fails for the hazards of its launches, if the session is
    strict.
    """
    session = _session(item.config)
    runner = session.runner
    if runner is None:
        return (yield)
    if "difftest_runner" not in getattr(item, "fixturenames", ()):
        from difftest.plugin.launches import report_hazards

        result = yield
        report_hazards(item, strict=True)
        return result
    from difftest.plugin.kernel_call import run_kernel_test

    return (yield from run_kernel_test(item, session, runner))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Report the hazards of launches in fixtures, and of a test that failed."""
    result = yield
    if _session(item.config).launches is not None:
        from difftest.plugin.launches import report_hazards

        report_hazards(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace the text of a failed kernel test by its report."""
    report = yield
    if call.excinfo is not None and _session(item.config).runner is not None:
        from difftest.plugin.failure_output import set_report
        from difftest.testing.harness.failures import ReportedFailure

        if isinstance(item, pytest.Function) and isinstance(
            call.excinfo.value, ReportedFailure
        ):
            set_report(item, call.excinfo.value, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(config: pytest.Config) -> Generator[None, Any, Any]:
    """Escape lone surrogates in a report, which no encoding can represent.

    One in an error's text would end a pytest-xdist worker: its other tests would not run, and the
    kernel's error would be lost.
    """
    data = yield
    if data is None or _session(config).runner is None:
        return data
    from difftest.plugin.failure_output import encodable

    return encodable(data)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_terminal_summary")
def pytest_one_report_a_bug(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Group cases of one test that fail in the same way under one report and one summary line."""
    if _session(config).runner is None:
        return (yield)
    stats = terminalreporter.stats
    if stats.get("warnings"):
        from difftest.plugin.repeated_warnings import unique_warnings

        stats["warnings"] = unique_warnings(stats["warnings"])
    if not stats.get("failed"):
        return (yield)
    from difftest.plugin.failure_output import group_failures

    is_line = config.option.tbstyle == "line"
    hidden_on = config.get_terminal_writer() if is_line else None
    with group_failures(stats, hidden_on):
        return (yield)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Name the backends in a JUnit report, and start the display of the running case."""
    config = session.config
    _session(config).own = session
    runner = _session(config).runner
    if runner is not None:
        from difftest.plugin.session import name_backends
        from difftest.testing.report.failure import running_case

        config.add_cleanup(running_case(runner).close)
        name_backends(config, runner.backends)


def _only_collects(config: pytest.Config) -> bool:
    """Return whether a command of this package collects tests, and runs none."""
    from difftest.testing.session.options import ASKED

    return any(hasattr(plugin, ASKED) for plugin in config.pluginmanager.get_plugins())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a pytest-xdist worker's state to the controller; else run the mutants, if requested.

    The controller reads the state here, because after Ctrl-C pytest-xdist no longer calls
    ``pytest_testnodedown``.
    """
    from difftest.plugin.session import read_workers, usage_error, worker_state

    state = _session(session.config)
    output = getattr(session.config, "workeroutput", None)
    launches = None if _only_collects(session.config) else state.launches
    if launches is not None and not state.has_run:
        from difftest.plugin.launches import note_importers

        note_importers(launches)
    if output is not None:
        output["difftest"] = worker_state(state)
        return
    read_workers(state)
    if usage_error(session.config):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif (cases := state.request.mutate) is not None:
        from difftest.tools.mutants.command import mutate_session

        mutate_session(session, max(1, int(cases)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """Keep a worker in a pytest-xdist controller."""
    _session(node.config).workers.append(node)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Print the summary of comparisons and of tests that did not run; write a requested report."""
    session = _session(config)
    reports = [
        report for several in terminalreporter.stats.values() for report in several
    ]
    launches = _launch_lines(session, config, reports)
    tables = {
        "kernels against their references": _end_lines(
            session, config, reports, has_launches=bool(launches)
        ),
        "kernels that tests launched themselves": launches,
    }
    for title, lines in tables.items():
        if lines:
            terminalreporter.write_sep("=", title)
        _write(terminalreporter, lines)
    if session.runner is not None and "GITHUB_ACTIONS" in os.environ:
        from difftest.plugin.failure_output import annotation_lines

        _write(terminalreporter, annotation_lines(reports))
    if session.request.report is not None:
        from difftest.plugin.session import write_session_report

        lines = write_session_report(session, reports, int(exitstatus))
        _write(terminalreporter, lines)


def _write(terminal: pytest.TerminalReporter, lines: Iterable[str]) -> None:
    """Write lines one at a time: pytest escapes characters that a terminal lacks."""
    for line in lines:
        terminal.write_line(line)


def _end_lines(
    session: Session, config: pytest.Config, reports: list[Any], *, has_launches: bool
) -> list[str]:
    """Return the lines of the summary; empty for a session without kernel tests."""
    lines: list[str] = []
    is_verbose = config.get_verbosity() > 0
    if session.runner is not None or session.uncollected:
        lines += _comparison_lines(session, config, reports, has_launches=has_launches)
    if session.left_out and not config.option.collectonly:
        from difftest.plugin.dialects import left_out_lines

        lines += left_out_lines(session.left_out, verbose=is_verbose)
    if session.workers:
        from difftest.plugin.session import usage_error

        # Without workers, pytest has printed the usage error.
        wrong = usage_error(config)
        if wrong:
            lines += f"ERROR: {wrong}".splitlines()
    return lines


def _comparison_lines(
    session: Session, config: pytest.Config, reports: list[Any], *, has_launches: bool
) -> list[str]:
    """Return the lines on the comparisons, and on modules that were not collected."""
    # A session without kernels imports neither NumPy nor the summary.
    from difftest.plugin.summary import summary_lines

    if config.option.collectonly and not session.uncollected:
        return []
    is_verbose = config.get_verbosity() > 0
    if session.runner is None:
        return summary_lines(None, [], session.uncollected, verbose=is_verbose)
    from difftest.testing.report.totals import tallies_of, total_of

    ran = [backend.name for backend in session.runner.backends]
    tally = total_of(tallies_of(reports, session.stopped))
    return summary_lines(
        tally,
        ran,
        session.uncollected,
        launched=has_launches,
        verbose=is_verbose,
    )


def _launch_lines(
    session: Session, config: pytest.Config, reports: list[Any]
) -> list[str]:
    """Return the lines on the launches of tests that call kernels themselves."""
    if session.launches is None or config.option.collectonly:
        return []
    from difftest.plugin.launches import launch_lines
    from difftest.testing.report.totals import tallies_of

    if not session.launches.kernels and tallies_of(reports, session.stopped):
        return []
    return launch_lines(session.launches, verbose=config.get_verbosity() > 0)

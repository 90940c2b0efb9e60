"""The pytest plugin: hooks, and nothing else.

Standard library and pytest alone at import time: a session that asks for no backend pays nothing.

Options, and the ini keys that may take their place, are in :mod:`difftest.testing.session.options`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from difftest.testing.harness.runner import Runner
    from difftest.testing.session.options import Session


def _session(config: pytest.Config) -> Session:
    """What the plugin keeps of this session."""
    from difftest.testing.session.options import SESSION

    return config.stash[SESSION]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ini keys. Options follow when others have declared theirs."""
    from difftest.testing.session.options import add_keys

    add_keys(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Install the embedded modules before any conftest or test imports a kernel.

    What counts is what was asked for when conftests have declared their options.
    """
    from difftest.plugin.session import prepare_session, start_session
    from difftest.testing.session.options import (
        SESSION,
        add_options,
        distribute,
        extra_arguments,
        read_request,
    )

    namespace = early_config.known_args_namespace
    if namespace.help or namespace.version:
        result = yield
        add_options(parser, early_config, args)
        return result
    asked = read_request(early_config, parser, args, final=False)
    prepared = prepare_session(early_config, asked)
    if getattr(namespace, "hypothesis_profile", None) is not None:
        from difftest.plugin import profiles

        profiles.register_profiles()  # it is asked for by name, though no kernel test may run
        early_config.pluginmanager.register(profiles)
    result = yield
    request = read_request(early_config, parser, args, final=True)
    if request.backends != asked.backends:
        prepared.close()
        prepare_session(early_config, request)
    add_options(parser, early_config, args)
    early_config.stash[SESSION] = start_session(early_config, request)
    if request.wants_backends:  # a kernel that cannot be imported stops no other's tests
        extra_arguments(args, "--continue-on-collection-errors")
    if request.wants_backends and early_config.pluginmanager.hasplugin("xdist"):
        distribute(request, namespace, args)
    return result


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the backends, and our options that others have taken."""
    from difftest.testing.session.options import taken_line

    session = _session(config)
    backends = session.runner.backends if session.runner else ()
    lines = [f"difftest: {backend.description}" for backend in backends]
    return lines + ([taken_line(session.request.taken)] if session.request.taken else [])


@pytest.fixture(scope="session")
def difftest_runner(request: pytest.FixtureRequest) -> Runner:
    """The runner of the session's backends."""
    runner = _session(request.config).runner
    if runner is None:
        pytest.fail("kernel tests need a backend: --simulate or --device", pytrace=False)
    return runner


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[Any], list[Any]]:
    """Leave modules of kernel tests out, unimported, if no backend was asked for."""
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
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Collect the other modules if one ends the program, and modules that lack one dialect."""
    session = _session(collector.config)
    if not session.request.wants_backends and collector.nodeid not in session.mixed:
        return (yield)
    from difftest.plugin.dialects import collected_without
    from difftest.testing.harness.limits import exit_of

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

    Without a backend leave the kernel tests of a module out that has others too.
    """
    items = yield
    session = _session(collector.config)
    request = session.request
    is_left_out = not request.wants_backends and collector.nodeid in session.mixed
    if not items or not (request.wants_backends or is_left_out):
        return items
    from difftest.plugin.dialects import SPEC
    from difftest.testing.harness.decorator import kernel_test_of
    from difftest.testing.session.collection import explicit_checks

    test = kernel_test_of(obj)
    if test is None:
        return items
    if is_left_out:
        session.uncollected.add(collector.nodeid)
        return []
    backends = session.runner.backends if session.runner else ()
    marks = list(getattr(obj, "pytestmark", ()))
    for check in explicit_checks(test, marks, backends) if request.case is None else ():
        added = collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=check)
        for item in added:
            item.obj = check  # pytest looks the function up by its name, which is the test's
        items += added
    for item in items:
        item.stash[SPEC] = test.spec
    return items


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out kernels that no backend runs; with ``--case``, keep the one kernel test.

    A backend that was asked for, and whose option is another's, is a usage error. So is a backend
    that runs none of the kernels.
    """
    from difftest.plugin.dialects import leave_out
    from difftest.plugin.session import select_case, usage_error

    leave_out(config, items)
    wrong = usage_error(config)
    if wrong and not hasattr(config, "workerinput"):  # a worker tells the controller
        raise pytest.UsageError(wrong)
    text = _session(config).request.case
    if text is not None:
        select_case(config, items, text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Count what a kernel test compares; a test that compares nothing fails.

    Its reference has one BLAS thread as its kernel has: more of them take as long, and all cores.
    """
    from difftest.plugin.session import drawn_test, reproduction_of, save_failure

    session = _session(item.config)
    runner = session.runner
    if runner is None or "difftest_runner" not in getattr(item, "fixturenames", ()):
        return (yield)
    from difftest.plugin.failure_output import rerun_alone, trim_traceback
    from difftest.simulator.program_scheduler import one_thread
    from difftest.support.choices import PAGES
    from difftest.support.internal_errors import drain_internal_errors, internal_error_scope
    from difftest.testing.harness import failures
    from difftest.testing.harness.spec_arguments import SpecError
    from difftest.testing.harness.tally import PROPERTY
    from difftest.testing.harness.writers import locate_writers
    from difftest.testing.report.document import CASE, DETAILS, details
    from difftest.testing.report.failure import one_of_several
    from difftest.testing.session.options import SAVE

    finished = False
    failed = None
    drawn = drawn_test(item, session.request)
    runner.start(reproduction_of(item, session.request))
    try:
        with one_thread(), one_of_several(runner):
            result = yield
        finished = True
        runner.check_hazards()
        runner.report_uncovered()
    except SpecError as error:
        raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None
    except KeyboardInterrupt as interrupt:
        session.stopped.append(item.user_properties)
        if isinstance(interrupt.__cause__, pytest.exit.Exception):
            raise interrupt.__cause__ from None
        raise
    except failures.CaseFailure as failure:
        runner.now = runner.reproduction = None  # which is over, whatever is done about it
        with internal_error_scope("the line that wrote the wrong element"):
            locate_writers(failure, runner.backends)
        is_sure = isinstance(failure, failures.BrokenReferenceError) or runner.repeats.over
        if drawn and not is_sure:
            with internal_error_scope("the run in a process of its own"):
                failure.fresh = rerun_alone(item.config, failure)
        if failure.again is not None:
            if not failure.again.edges:
                item.user_properties.append((CASE, failure.case.to_json()))
            if session.request.save is not None:
                with internal_error_scope(SAVE.name):
                    failure.saved = save_failure(item, session.request, failure)
        failed = failure
        failure.end_in_kernel()
        raise
    except (Exception, pytest.fail.Exception) as error:
        if not isinstance(error, failures.ReportedFailure):
            trim_traceback(error, item, runner)
        raise
    finally:
        runner.now = runner.reproduction = None
        if not (finished and drawn):
            runner.tally.coverage.branches.clear()  # these were not all cases of the kernel
        if session.request.report is not None:
            with internal_error_scope(f"the report of {item.name}"):
                said = details(runner, failed, page=session.request.report.endswith(PAGES))
                item.user_properties.append((DETAILS, said))
        runner.tally.broken.update(drain_internal_errors())
        item.user_properties.append((PROPERTY, runner.tally.to_json()))
    accepts = drawn is None or drawn.spec.allow_inconclusive
    if text := runner.tally.nothing or ("" if accepts else runner.tally.weak):
        raise failures.NothingComparedError(text)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The text of a kernel test that failed is its report."""
    report = yield
    if call.excinfo is not None and _session(item.config).runner is not None:
        from difftest.plugin.failure_output import set_report
        from difftest.testing.harness.failures import ReportedFailure

        if isinstance(item, pytest.Function) and isinstance(call.excinfo.value, ReportedFailure):
            set_report(item, call.excinfo.value, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(config: pytest.Config) -> Generator[None, Any, Any]:
    """Escape what no encoding has: a lone surrogate in an error's text ends a pytest-xdist worker.

    Whose tests it had would not run, and the kernel's error would not be told.
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
    """Cases of one test that fail alike have one report, and one of the last lines."""
    stats = terminalreporter.stats
    runner = _session(config).runner
    if runner is not None and stats.get("warnings"):
        from difftest.plugin.failure_output import unique_warnings

        stats["warnings"] = unique_warnings(stats["warnings"])
    if runner is not None and stats.get("failed"):
        from difftest.plugin.failure_output import group_failures

        is_line = config.option.tbstyle == "line"
        with group_failures(stats, terminalreporter._tw if is_line else None):
            return (yield)
    return (yield)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Name the backends in a JUnit report; say how far kernel tests are, and what takes long."""
    config = session.config
    _session(config).own = session
    runner = _session(config).runner
    if runner is not None:
        from difftest.plugin.session import add_suite_properties
        from difftest.testing.report.failure import running_case

        config.add_cleanup(running_case(runner).close)
        add_suite_properties(config, runner.backends)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a pytest-xdist worker tell the controller what no report tells; else plant bugs.

    Its controller hears all here: after Ctrl-C nobody asks for what comes from workers.
    """
    from difftest.plugin.dialects import LeftOut, as_plain
    from difftest.plugin.session import usage_error

    kept = _session(session.config)
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        texts = [[pair for pair in own if isinstance(pair[1], str)] for own in kept.stopped]
        left_out = as_plain(kept.left_out), sorted(kept.served)
        output["difftest"] = sorted(kept.uncollected), texts, *left_out
        return
    for worker in kept.workers:
        told = getattr(worker, "workeroutput", {}).get("difftest", ((), (), (), ()))
        uncollected, stopped, left_out, served = told
        kept.uncollected.update(uncollected)
        kept.stopped += stopped
        kept.left_out.update(LeftOut(*row) for row in left_out)
        kept.served.update(served)
    if usage_error(session.config):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif (cases := kept.request.mutate) is not None:
        from difftest.tools.mutants.command import mutate_session

        mutate_session(session, max(1, int(cases)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """In a pytest-xdist controller, keep a worker."""
    _session(node.config).workers.append(node)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say what was compared, and what did not run and why; to a file too, if asked."""
    session = _session(config)
    from difftest.plugin.session import tally_of, usage_error

    reports = [report for several in terminalreporter.stats.values() for report in several]
    backends = session.runner.backends if session.runner else ()
    ran = [backend.name for backend in backends]
    tally = tally_of(reports, session.stopped) if session.runner else None  # imports NumPy
    lines: list[str] = []
    if session.uncollected or (session.runner and not config.option.collectonly):
        from difftest.plugin.summary import summary_lines  # a session without kernels has none

        lines = summary_lines(tally, ran, session.uncollected, verbose=config.get_verbosity() > 0)
    if session.left_out and not config.option.collectonly:
        from difftest.plugin.dialects import left_out_lines

        lines += left_out_lines(session.left_out, verbose=config.get_verbosity() > 0)
    if session.workers and (wrong := usage_error(config)):  # of workers; else it was said already
        lines += f"ERROR: {wrong}".splitlines()
    if lines:
        terminalreporter.write_sep("=", "kernels against their references")
        for line in lines:  # each by itself: what a terminal lacks is written as an escape
            terminalreporter.write_line(line)
    if session.request.report is not None:
        from difftest.plugin.session import write_session_report

        for line in write_session_report(session, reports, int(exitstatus)):
            terminalreporter.write_line(line)

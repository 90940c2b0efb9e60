"""The state of one pytest session: its request, its runner, and the tests that were left out."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difftest.support.choices import SIMULATORS
from difftest.testing.session.options import (
    CASE,
    DEVICE,
    MEMORY,
    REPORT,
    SESSION,
    SIMULATE,
    Request,
    Session,
    check_request,
    is_campaign,
)

if TYPE_CHECKING:
    from difftest.testing.backends.base import Backend
    from difftest.testing.harness.decorator import KernelTest
    from difftest.testing.harness.failures import CaseFailure, Reproduction
    from difftest.testing.harness.runner import Runner
    from difftest.testing.harness.tally import Tally


class _FastFinder:
    """An import hook ahead of pytest's own, which is slow for the packages that it rewrites."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, *_: object
    ) -> ModuleSpec | None:
        # Not the package itself: if pytest did not rewrite it, the next session here warns.
        is_plain = name.startswith(("difftest.", "hypothesis.", "numpy.", "ml_dtypes."))
        return PathFinder.find_spec(name, path) if is_plain else None


def prepare_session(config: pytest.Config, request: Request) -> ExitStack:
    """Install the embedded modules and Hypothesis's profiles before conftests are imported.

    Conftests may still change ``request`` by declaring options of their own. Close the returned
    stack to undo the installation; otherwise the config's cleanup closes it.
    """
    done = ExitStack()
    _at_end(config, done.close)
    if not request.wants_backends:
        return done
    is_collecting = gc.isenabled()
    gc.disable()  # not frozen: Hypothesis asks the collector for the owners of trio's random state
    sys.meta_path.insert(0, _FastFinder)
    done.callback(sys.meta_path.remove, _FastFinder)
    from difftest.plugin.profiles import default_profile
    from difftest.testing.drawing.examples import make_random_numbers

    done.enter_context(default_profile(request.device))
    if request.simulate not in (None, "sdk"):
        from difftest.testing.backends.base import BackendMissingError
        from difftest.testing.backends.selection import select_backends
        from difftest.testing.host.installation import embedded_with_predictions

        with suppress(
            BackendMissingError
        ):  # start_session raises it, when the request is final
            backends = select_backends(request.simulate, False, request.level)
            if any(backend.name in ("embedded", "plain") for backend in backends):
                done.enter_context(embedded_with_predictions(request.level))
    make_random_numbers()
    gc.freeze()  # loaded modules stay: garbage collections need not search them
    if (
        config.invocation_params.plugins
    ):  # a program runs pytest, and continues afterwards
        done.callback(gc.unfreeze)
    if is_collecting:
        gc.enable()
    return done


def _at_end(config: pytest.Config, action: Callable[[], None]) -> None:
    """Run a cleanup at the session's end, or at exit in a campaign, whose cases run later."""
    (atexit.register if is_campaign() else config.add_cleanup)(action)


def start_session(config: pytest.Config, request: Request) -> Session:
    """Prepare the requested backends and return the session; the config's cleanup undoes it.

    Raises
    ------
    pytest.UsageError : the request cannot be met, such as for a backend that is not installed.
    """
    check_request(request)
    session = Session(request)
    if request.timeout is not None or request.memory is not None:
        from difftest.testing.contract.limits import limit

        try:
            _at_end(config, limit(request.timeout, request.memory).close)
        except OSError as error:
            raise pytest.UsageError(f"{MEMORY.name}: {error}") from None
    if request.wants_backends:
        session.runner = _make_runner(config, request)
        gc.freeze()  # modules loaded here and by conftests stay, too
        if request.case is None and not request.device:
            from difftest.tools.scale.regressions import with_findings

            session.runner = with_findings(config, request, session.runner)
    return session


def foreign_options(config: pytest.Config) -> str:
    """Return the usage error of a backend option that another plugin declares and takes.

    It is empty if no such option was given, or if an ini key decides its meaning.
    """
    session = config.stash[SESSION]
    for option in (SIMULATE, DEVICE):
        value = config.getoption(option.name, None)
        if (
            option in session.request.taken
            and session.uncollected
            and value in (True, *SIMULATORS)
        ):
            accepted = "yes" if option is DEVICE else SIMULATORS[0]
            return (
                f"{option.name} was given, and a conftest or another plugin that declares it takes "
                f"it: none of the kernel tests in {', '.join(sorted(session.uncollected))} would "
                f"run.\n  remedy: -o {option.key}={accepted} runs them, and -o {option.key}=no "
                "says that the other option is meant; both are ini keys too"
            )
    return ""


def usage_error(config: pytest.Config) -> str:
    """Return the usage error of the requested backends; empty if there is none."""
    from difftest.plugin.dialects import unanswered

    return foreign_options(config) or unanswered(config)


def make_importable(config: pytest.Config) -> None:
    """Make kernels importable without an SDK, for the other tests of their modules.

    The config's cleanup undoes it.
    """
    packages = ("neuronxcc", "nki")
    if not any(
        name in sys.modules or importlib.util.find_spec(name) for name in packages
    ):
        from difftest.testing.host.installation import embedded_with_predictions

        config.add_cleanup(embedded_with_predictions().install().uninstall)


def _make_runner(config: pytest.Config, request: Request) -> Runner:
    from difftest.testing.backends.base import BackendMissingError
    from difftest.testing.backends.embedded import EmbeddedSimulator, run_beside_sdk
    from difftest.testing.backends.selection import select_backends
    from difftest.testing.harness.runner import Runner
    from difftest.tools.lint.check import findings_of

    try:
        backends = select_backends(*request.backends)
    except BackendMissingError as error:
        raise pytest.UsageError(str(error)) from None
    for backend in backends:
        if isinstance(backend, EmbeddedSimulator):
            backend.reader = findings_of
    if not request.device:
        from difftest.testing.harness.coverage import BranchTracer

        watch = BranchTracer() if request.case is None else None
        if watch is not None:
            config.add_cleanup(watch.close)
        return Runner(
            backends,
            verbose=config.get_verbosity() > 0,
            strict=request.strict,
            exact=request.exact,
            beside=run_beside_sdk,
            branch_tracer=watch,
        )
    from difftest.testing.backends.sdk import close_backend
    from difftest.testing.harness.device_runner import DeviceRunner, arbiter_for

    for backend in backends:
        config.add_cleanup(functools.partial(close_backend, backend))
    return DeviceRunner(
        backends, arbiter_for(backends), exact=request.exact, beside=run_beside_sdk
    )


def drawn_test(item: pytest.Item, request: Request) -> KernelTest | None:
    """Return the kernel test of an item with drawn cases, else None.

    A drawn case that fails ran after other cases, so it is run again alone. On a device nothing is
    run again, because that takes minutes and the device has guards of its own.
    """
    from difftest.testing.harness.decorator import kernel_test_of

    is_one = request.case is not None or request.device
    return None if is_one else kernel_test_of(getattr(item, "obj", None))


def reproduction_of(item: pytest.Item, request: Request) -> Reproduction:
    """Return how to run this test again, from the directory where pytest was started."""
    from difftest.testing.harness.failures import Reproduction

    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    node = f"{path}::{getattr(item, 'originalname', item.name)}"
    return Reproduction(node, request.options, request.case_key)


def save_failure(item: pytest.Item, request: Request, failure: CaseFailure) -> str:
    """Write a failing case for ``difftest replay``; return the file's path."""
    from difftest.support.output import write_file
    from difftest.testing.report.saved import EDGE, SavedFailure, file_name, modules_of

    assert isinstance(item, pytest.Function)
    name = getattr(item, "originalname", item.name)
    words = failure.again.edges if failure.again else ""
    case = f"{EDGE}{words}" if words else failure.case.to_json()
    saved = SavedFailure(
        f"{item.module.__name__}:{name}",
        case,
        modules_of(item.module),
        request.level,
        request.strictness,
    )
    file = Path(str(request.save)) / file_name(item.nodeid)
    write_file(file, saved.script(f"{failure.spec.name} {failure.title()}"))
    return str(file)


def write_session_report(
    session: Session, reports: Iterable[Any], code: int
) -> list[str]:
    """Write the report at the session's end; return lines with the reason if that fails.

    Without its report, a session that would pass ends with an internal error.
    """
    from difftest.plugin.dialects import groups_of
    from difftest.support.internal_errors import (
        drain_internal_errors,
        internal_error_scope,
    )
    from difftest.support.output import format_write_error
    from difftest.support.versions import versions
    from difftest.testing.report.document import session_document, write_report

    backends = session.runner.backends if session.runner else ()
    groups = [group._asdict() for group in groups_of(session.left_out)]
    left = session.uncollected, groups, code
    is_written = False
    lines: list[str] = []
    with internal_error_scope(REPORT.name):
        document = session_document(
            versions(), backends, reports, session.stopped, left
        )
        try:
            write_report(Path(str(session.request.report)), document)
            is_written = True
        except OSError as error:
            lines.append(f"ERROR: {REPORT.name}: {format_write_error(error)}")
    if not is_written and session.own is not None and code == pytest.ExitCode.OK:
        session.own.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    return [*lines, *drain_internal_errors()]


def add_suite_properties(config: pytest.Config, backends: Iterable[Backend]) -> None:
    """Add the backends and versions to the JUnit report, if there is one."""
    from _pytest.junitxml import xml_key

    from difftest.support.versions import versions

    if (report := config.stash.get(xml_key, None)) is None:
        return
    texts = {f"backend_{backend.name}": backend.description for backend in backends}
    texts |= {f"version_{name}": version for name, version in versions().items()}
    for name, text in texts.items():
        report.add_global_property(f"difftest_{name}", text)


def tally_of(reports: Iterable[Any], stopped: Iterable[Any]) -> Tally:
    """Return the sum of the tallies in reports of tests and in properties of stopped tests."""
    from difftest.testing.harness.tally import PROPERTY, tally_from_json
    from difftest.testing.report.totals import total_of

    calls = [
        one.user_properties for one in reports if getattr(one, "when", "") == "call"
    ]
    properties = map(dict, [*calls, *stopped])
    return total_of(
        [tally_from_json(row[PROPERTY]) for row in properties if PROPERTY in row]
    )


def worker_state(session: Session) -> tuple[Any, ...]:
    """Return the state that a pytest-xdist worker sends to its controller, beside reports."""
    from difftest.plugin.dialects import as_plain

    texts = [
        [pair for pair in own if isinstance(pair[1], str)] for own in session.stopped
    ]
    left_out = as_plain(session.left_out)
    return sorted(session.uncollected), texts, left_out, sorted(session.served)


def read_workers(session: Session) -> None:
    """Add the state of the workers to the controller's session."""
    from difftest.plugin.dialects import LeftOut

    for worker in session.workers:
        state = getattr(worker, "workeroutput", {}).get("difftest", ((), (), (), ()))
        uncollected, stopped, left_out, served = state
        session.uncollected.update(uncollected)
        session.stopped += stopped
        session.left_out.update(LeftOut(*row) for row in left_out)
        session.served.update(served)


def select_case(config: pytest.Config, items: list[pytest.Item], text: str) -> None:
    """Keep the selected kernel test, and run it on the case of ``text`` alone."""
    from difftest.testing.drawing.explicit import CaseError, case_from_json
    from difftest.testing.harness.decorator import kernel_test_of

    selected = [
        (item, test)
        for item in items
        if isinstance(item, pytest.Function) and (test := kernel_test_of(item.obj))
    ]
    tests = {id(test): test for _, test in selected}
    if len(tests) != 1:
        raise pytest.UsageError(
            f"{CASE.name}: {len(tests)} kernel tests are selected; accepted: one, named as "
            "PATH::TEST"
        )
    (test,) = tests.values()
    try:
        case = case_from_json(text, test.spec)
    except CaseError as error:
        raise pytest.UsageError(f"{CASE.name}: {error}") from None
    for item, _ in selected:
        item.obj = functools.partial(test.check_case, case=case)
    kept = [item for item, _ in selected]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept

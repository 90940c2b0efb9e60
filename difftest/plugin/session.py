"""The state of one pytest session: what was asked for, the runner, and what was left out."""

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
    """Finds modules before pytest does, which is slow to read the packages that it rewrites."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, *_: object) -> ModuleSpec | None:
        # Not the package itself: of one that pytest did not rewrite its next session here warns.
        is_plain = name.startswith(("difftest.", "hypothesis.", "numpy.", "ml_dtypes."))
        return PathFinder.find_spec(name, path) if is_plain else None


def prepare_session(config: pytest.Config, request: Request) -> ExitStack:
    """What must be there before conftests are: the embedded modules, and Hypothesis's profiles.

    ``request`` is what they may change, by declaring options of their own. What is returned undoes
    it all; at the latest, the config's cleanup does.
    """
    done = ExitStack()
    _at_end(config, done.close)
    if not request.wants_backends:
        return done
    is_collecting = gc.isenabled()
    gc.disable()  # not frozen: Hypothesis asks the collector who holds trio's random numbers
    sys.meta_path.insert(0, _FastFinder)
    done.callback(sys.meta_path.remove, _FastFinder)
    from difftest.plugin.profiles import default_profile
    from difftest.testing.harness.minimal import make_random_numbers

    done.enter_context(default_profile(request.device))
    if request.simulate not in (None, "sdk"):
        from difftest.testing.backends.base import BackendMissingError
        from difftest.testing.backends.selection import select_backends
        from difftest.testing.host.installation import embedded_with_predictions

        with suppress(BackendMissingError):  # a usage error, when it is sure what was asked for
            backends = select_backends(request.simulate, False, request.level)
            if any(backend.name in ("embedded", "plain") for backend in backends):
                done.enter_context(embedded_with_predictions(request.level))
    make_random_numbers()
    gc.freeze()  # what is loaded stays: each collection of garbage would look through it
    if config.invocation_params.plugins:  # a program that runs pytest, and goes on
        done.callback(gc.unfreeze)
    if is_collecting:
        gc.enable()
    return done


def _at_end(config: pytest.Config, action: Callable[[], None]) -> None:
    """Undo something at the session's end; in a campaign, whose cases run after that, at exit."""
    (atexit.register if is_campaign() else config.add_cleanup)(action)


def start_session(config: pytest.Config, request: Request) -> Session:
    """Prepare the backends that were asked for; the config's cleanup undoes what this installs.

    What cannot be done, such as a backend that is not here, is a usage error.
    """
    check_request(request)
    session = Session(request)
    if request.timeout is not None or request.memory is not None:
        from difftest.testing.harness.limits import limit

        try:
            _at_end(config, limit(request.timeout, request.memory).close)
        except OSError as error:
            raise pytest.UsageError(f"{MEMORY.name}: {error}") from None
    if request.wants_backends:
        session.runner = _make_runner(config, request)
        gc.freeze()  # what this has loaded, and conftests, stays too
        if request.case is None and not request.device:
            from difftest.tools.scale.regressions import with_findings

            session.runner = with_findings(config, request, session.runner)
    return session


def foreign_options(config: pytest.Config) -> str:
    """What is wrong if another's option of our name was given, and no key says what is meant."""
    session = config.stash[SESSION]
    for option in (SIMULATE, DEVICE):
        value = config.getoption(option.name, None)
        if option in session.request.taken and session.uncollected and value in (True, *SIMULATORS):
            accepted = "yes" if option is DEVICE else SIMULATORS[0]
            return (
                f"{option.name} was given, and a conftest or another plugin that declares it takes "
                f"it: none of the kernel tests in {', '.join(sorted(session.uncollected))} would "
                f"run.\n  remedy: -o {option.key}={accepted} runs them, and -o {option.key}=no "
                "says that the other option is meant; both are ini keys too"
            )
    return ""


def usage_error(config: pytest.Config) -> str:
    """Return what is wrong with the backends that were asked for; empty if nothing is."""
    from difftest.plugin.dialects import unanswered

    return foreign_options(config) or unanswered(config)


def make_importable(config: pytest.Config) -> None:
    """Let modules that hold kernels be imported for their other tests, where no SDK is.

    The config's cleanup undoes it.
    """
    packages = ("neuronxcc", "nki")
    if not any(name in sys.modules or importlib.util.find_spec(name) for name in packages):
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
    return DeviceRunner(backends, arbiter_for(backends), exact=request.exact, beside=run_beside_sdk)


def drawn_test(item: pytest.Item, request: Request) -> KernelTest | None:
    """The kernel test if its cases are drawn, so that others ran before the one that it reports.

    Nothing is run again on a device: it takes minutes, and has guards of its own.
    """
    from difftest.testing.harness.decorator import kernel_test_of

    is_one = request.case is not None or request.device
    return None if is_one else kernel_test_of(getattr(item, "obj", None))


def reproduction_of(item: pytest.Item, request: Request) -> Reproduction:
    """How to run this test again, from the directory where pytest was started."""
    from difftest.testing.harness.failures import Reproduction

    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    node = f"{path}::{getattr(item, 'originalname', item.name)}"
    return Reproduction(node, request.options, request.case_key)


def save_failure(item: pytest.Item, request: Request, failure: CaseFailure) -> str:
    """Write what ``difftest replay`` needs of a failing case; where, from the working directory."""
    from difftest.support.output import write_file
    from difftest.testing.report.saved import EDGE, SavedFailure, file_name, modules_of

    assert isinstance(item, pytest.Function)
    name = getattr(item, "originalname", item.name)
    words = failure.again.edges if failure.again else ""
    case = f"{EDGE}{words}" if words else failure.case.to_json()
    where = modules_of(item.module), request.level, request.strictness
    saved = SavedFailure(f"{item.module.__name__}:{name}", case, *where)
    file = Path(str(request.save)) / file_name(item.nodeid)
    write_file(file, saved.script(f"{failure.spec.name} {failure.title()}"))
    return str(file)


def write_session_report(session: Session, reports: Iterable[Any], code: int) -> list[str]:
    """Write the report of a session that is over, and return lines that say why it is not written.

    A session that would end well ends with an error then: what was asked for is missing.
    """
    from difftest.plugin.dialects import groups_of
    from difftest.support.internal_errors import drain_internal_errors, internal_error_scope
    from difftest.support.output import format_write_error
    from difftest.support.versions import versions
    from difftest.testing.report.document import session_document, write_report

    backends = session.runner.backends if session.runner else ()
    groups = [group._asdict() for group in groups_of(session.left_out)]
    left = session.uncollected, groups, code
    is_written = False
    lines: list[str] = []
    with internal_error_scope(REPORT.name):
        document = session_document(versions(), backends, reports, session.stopped, left)
        try:
            write_report(Path(str(session.request.report)), document)
            is_written = True
        except OSError as error:
            lines.append(f"ERROR: {REPORT.name}: {format_write_error(error)}")
    if not is_written and session.own is not None and code == pytest.ExitCode.OK:
        session.own.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    return [*lines, *drain_internal_errors()]


def add_suite_properties(config: pytest.Config, backends: Iterable[Backend]) -> None:
    """Tell a JUnit report, if one is written, which backends and versions ran."""
    from _pytest.junitxml import xml_key

    from difftest.support.versions import versions

    if (report := config.stash.get(xml_key, None)) is None:
        return
    texts = {f"backend_{backend.name}": backend.description for backend in backends}
    texts |= {f"version_{name}": version for name, version in versions().items()}
    for name, text in texts.items():
        report.add_global_property(f"difftest_{name}", text)


def tally_of(reports: Iterable[Any], stopped: Iterable[Any]) -> Tally:
    """The sum of the tallies that reports of tests carry, or properties of those stopped."""
    from difftest.testing.harness.tally import PROPERTY, tally_from_json
    from difftest.testing.report.totals import total_of

    calls = [one.user_properties for one in reports if getattr(one, "when", "") == "call"]
    properties = map(dict, [*calls, *stopped])
    return total_of([tally_from_json(row[PROPERTY]) for row in properties if PROPERTY in row])


def select_case(config: pytest.Config, items: list[pytest.Item], text: str) -> None:
    """Keep the one kernel test that was selected, and run it on just the case of ``text``."""
    from difftest.testing.harness.decorator import kernel_test_of
    from difftest.testing.harness.explicit import CaseError, case_from_json

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

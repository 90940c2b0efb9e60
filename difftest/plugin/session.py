"""The state of one pytest session: its errors, its reports, and the tests that were left out."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difftest.support.choices import SIMULATORS
from difftest.testing.session.options import (
    CASE,
    DEVICE,
    REPORT,
    SESSION,
    SIMULATE,
    Request,
    Session,
)

if TYPE_CHECKING:
    from difftest.testing.backends.base import Backend
    from difftest.testing.harness.decorated import KernelTest
    from difftest.testing.harness.failures import CaseFailure, Reproduction


def foreign_options(config: pytest.Config) -> str:
    """Return the usage error of a backend option that another plugin declares and takes.

    It is empty if no such option was given, or if an ini key decides its meaning.
    """
    session = config.stash[SESSION]
    if not session.uncollected:
        return ""
    for option in (SIMULATE, DEVICE):
        value = config.getoption(option.name, None)
        if option in session.request.taken and value in (True, *SIMULATORS):
            return (
                f"{option.name} was given, but a conftest or another plugin has declared it: the "
                f"kernel tests in {', '.join(sorted(session.uncollected))} would not run.\n"
                f"  remedy: pass {option.names[0]} to run them, or -o {option.key}=no, which is "
                "an ini key too, if the other option is meant"
            )
    return ""


def usage_error(config: pytest.Config) -> str:
    """Return the usage error of the requested backends; empty if there is none."""
    from difftest.plugin.dialects import idle_backends_error

    return foreign_options(config) or idle_backends_error(config)


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


def drawn_test(item: pytest.Item, request: Request) -> KernelTest | None:
    """Return the kernel test of an item with drawn cases, else None.

    A drawn case that fails ran after other cases, so it is run again alone. On a device nothing is
    run again, because that takes minutes and the device has guards of its own.
    """
    from difftest.testing.harness.decorated import kernel_test_of

    if request.case is not None or request.device:
        return None
    return kernel_test_of(getattr(item, "obj", None))


def reproduction_of(item: pytest.Item, request: Request) -> Reproduction:
    """Return how to run this test again, from the directory where pytest was started."""
    from difftest.testing.harness.failures import Reproduction

    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    node = f"{path}::{getattr(item, 'originalname', item.name)}"
    return Reproduction(node, request.options, request.case_option)


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

    groups = [group._asdict() for group in groups_of(session.left_out)]
    is_written = False
    lines: list[str] = []
    with internal_error_scope(REPORT.name):
        document = session_document(
            session, reports, versions=versions(), left_out=groups, exit_code=code
        )
        try:
            write_report(Path(str(session.request.report)), document)
            is_written = True
        except OSError as error:
            lines.append(f"ERROR: {REPORT.name}: {format_write_error(error)}")
    if not is_written and session.own is not None and code == pytest.ExitCode.OK:
        session.own.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    return lines + drain_internal_errors()


def name_backends(config: pytest.Config, backends: Iterable[Backend]) -> None:
    """Add the backends and versions to the JUnit report, if there is one."""
    from difftest.testing.session.pytest_internals import junit_report

    report = junit_report(config)
    if report is None:
        return
    from difftest.support.versions import versions

    for backend in backends:
        report.add_global_property(
            f"difftest_backend_{backend.name}", backend.description
        )
    for name, version in versions().items():
        report.add_global_property(f"difftest_version_{name}", version)


def worker_state(session: Session) -> dict[str, Any]:
    """Return the state, other than reports, that a pytest-xdist worker sends to its controller.

    pytest-xdist sends lists, dictionaries, numbers and texts alone.
    """
    from difftest.plugin.dialects import as_plain

    texts = [
        [pair for pair in properties if isinstance(pair[1], str)]
        for properties in session.stopped
    ]
    launches = session.launches
    return {
        "uncollected": sorted(session.uncollected),
        "stopped": texts,
        "left_out": as_plain(session.left_out),
        "served": sorted(session.served),
        "launches": None if launches is None else launches.as_plain(),
    }


def read_workers(session: Session) -> None:
    """Add the state of the workers to the controller's session."""
    from difftest.plugin.dialects import LeftOut

    for worker in session.workers:
        output = getattr(worker, "workeroutput", {})
        if "difftest" not in output:
            continue
        state = output["difftest"]
        session.uncollected.update(state["uncollected"])
        session.stopped += state["stopped"]
        session.left_out.update(LeftOut(*row) for row in state["left_out"])
        session.served.update(state["served"])
        if session.launches is not None and state["launches"] is not None:
            session.launches.merge(state["launches"])


def select_case(config: pytest.Config, items: list[pytest.Item], text: str) -> None:
    """Keep the selected kernel test, and run it on the case of ``text`` alone."""
    from difftest.testing.drawing.explicit import CaseError, case_from_json

    test, kept = _selected_test(items)
    try:
        case = case_from_json(text, test.spec)
    except CaseError as error:
        raise pytest.UsageError(f"{CASE.name}: {error}") from None
    for item in kept:
        item.obj = functools.partial(test.check_case, case=case)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _selected_test(
    items: Iterable[pytest.Item],
) -> tuple[KernelTest, list[pytest.Function]]:
    """Return the kernel test of the selected items, and its items; raise if there is not one."""
    from difftest.testing.harness.decorated import kernel_test_of

    tests = {}
    kept: list[pytest.Function] = []
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        test = kernel_test_of(item.obj)
        if test is not None:
            tests[id(test)] = test
            kept.append(item)
    if len(tests) != 1:
        raise pytest.UsageError(
            f"{CASE.name}: {len(tests)} kernel tests are selected; accepted: one, named as "
            "PATH::TEST"
        )
    return next(iter(tests.values())), kept

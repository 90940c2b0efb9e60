"""The call of one kernel test: its comparisons, its failure, and the data of its report."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from difftest.plugin import failure_output, session
from difftest.simulator.program_scheduler import one_thread
from difftest.support.choices import PAGES
from difftest.support.internal_errors import drain_internal_errors, internal_error_scope
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.provider import use_backend
from difftest.testing.harness.error_groups import one_of_several
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    CaseFailure,
    ReportedFailure,
)
from difftest.testing.harness.minimal_failure import check_hazards_of_drawn_cases
from difftest.testing.harness.tally import PROPERTY
from difftest.testing.harness.writers import locate_writers
from difftest.testing.report import document
from difftest.testing.session.options import SAVE

if TYPE_CHECKING:
    from difftest.testing.harness.decorated import KernelTest
    from difftest.testing.harness.runner import Runner
    from difftest.testing.session.options import Session


def run_kernel_test(
    item: pytest.Item, state: Session, runner: Runner
) -> Generator[None, object, object]:
    """Run the rest of a ``pytest_runtest_call`` hook around a kernel test.

    The reference has one BLAS thread, as the kernel has. More threads take as long and occupy all
    cores.
    """
    finished = False
    failed = None
    state.has_run = True
    drawn = session.drawn_test(item, state.request)
    use_backend(getattr(item, "obj", None))
    runner.start(session.reproduction_of(item, state.request))
    try:
        with one_thread(), one_of_several(runner):
            result = yield
        finished = True
        if drawn is None:
            runner.check_hazards()
        else:
            check_hazards_of_drawn_cases(runner, getattr(item, "obj", None))
        runner.report_uncovered()
    except SpecError as error:
        raise pytest.fail.Exception(
            f"{type(error).__name__}: {error}", pytrace=False
        ) from None
    except KeyboardInterrupt as interrupt:
        state.stopped.append(item.user_properties)
        if isinstance(interrupt.__cause__, pytest.exit.Exception):
            raise interrupt.__cause__ from None
        raise
    except CaseFailure as failure:
        runner.now = runner.reproduction = None  # the case is over
        _complete_failure(item, state, runner, failure, drawn)
        failed = failure
        failure.end_in_kernel()
        raise
    except (Exception, pytest.fail.Exception) as error:
        if not isinstance(error, ReportedFailure):
            failure_output.trim_traceback(error, item, runner)
        raise
    finally:
        runner.now = runner.reproduction = None
        if not (finished and drawn):
            runner.tally.coverage.branches.clear()  # these were not all cases of the kernel
        _add_properties(item, state, runner, failed)
    runner.check_compared(drawn.spec if drawn else None)
    return result


def _complete_failure(
    item: pytest.Item,
    state: Session,
    runner: Runner,
    failure: CaseFailure,
    drawn: KernelTest | None,
) -> None:
    """Add to a failure the line that wrote, the run in a new process and the saved script."""
    with internal_error_scope("the line that wrote the wrong element"):
        locate_writers(failure, runner.backends)
    is_sure = isinstance(failure, BrokenReferenceError) or runner.repeats.over
    if drawn and not is_sure:
        with internal_error_scope("the run in a process of its own"):
            failure.fresh = failure_output.rerun_alone(item.config, failure)
    if failure.again is None:
        return
    if not failure.again.edges:
        item.user_properties.append((document.CASE, failure.case.to_json()))
    if state.request.save is not None:
        with internal_error_scope(SAVE.name):
            failure.saved = session.save_failure(item, state.request, failure)


def _add_properties(
    item: pytest.Item, state: Session, runner: Runner, failed: CaseFailure | None
) -> None:
    """Add the report's details and the tally to the test's properties."""
    if state.request.report is not None:
        with internal_error_scope(f"the report of {item.name}"):
            data = document.details(
                runner, failed, page=state.request.report.endswith(PAGES)
            )
            item.user_properties.append((document.DETAILS, data))
    runner.tally.broken.update(drain_internal_errors())
    item.user_properties.append((PROPERTY, runner.tally.to_json()))

"""``@kernel_test``: turn a KernelSpec and a test function into a Hypothesis test."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import hypothesis

from difftest.simulator.errors import guarded
from difftest.support.annotations import signature_shown
from difftest.support.call_stack import call_with_room
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import LIMITS, fault_of_machine
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.cases import cases
from difftest.testing.harness.bound_case import BoundCase, runnable
from difftest.testing.harness.decorated import (
    ATTRIBUTE,
    RUNNER_FIXTURE,
    KernelTest,
    TestFunction,
)
from difftest.testing.harness.direct_call import run_test
from difftest.testing.harness.edges import check_edges
from difftest.testing.harness.failures import CaseFailure, NothingComparedError
from difftest.testing.harness.minimal_failure import minimal_failure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tally import Tally

# The text of a failure is complete: pytest shows no frame of this module.
__tracebackhide__ = True

Decorator = Callable[[TestFunction], TestFunction]
Arguments = ParamSpec("Arguments")

OBSERVED = "HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY"
"""The prefix of the environment variables for Hypothesis's observability."""


def _make_decorator(
    make: Callable[Arguments, KernelSpec],
) -> Callable[Arguments, Decorator]:
    """Return the decorator, with the signature of a spec, which editors show."""
    signature = inspect.signature(make)

    def kernel_test(*none: Arguments.args, **arguments: Arguments.kwargs) -> Decorator:
        """Test a kernel against its reference on drawn cases; the arguments are a KernelSpec's.

        The decorated function takes ``case`` (a :class:`BoundCase`), and any fixtures. It calls
        ``case.check()``. The result is a Hypothesis test: put ``@settings``, ``@seed``,
        ``@example`` and ``@reproduce_failure`` on top. The plugin adds a test for each explicit
        case and rejection.

        Raises
        ------
        SpecError : an argument contradicts the others, or the function does not take ``case``.
        """
        try:
            signature.bind(*none, **arguments)
        except TypeError as error:
            received = ", ".join(arguments) or "nothing"
            accepted = ", ".join(signature.parameters)
            raise SpecError(
                f"kernel_test: received {received}: {error}; accepted: {accepted}"
            ) from None
        try:
            return functools.partial(decorate, make(*none, **arguments))
        except SpecError as error:
            # Its text is complete without the lines of this package.
            raise error.with_traceback(None) from None

    kernel_test.__signature__ = signature  # type: ignore[attr-defined]
    return kernel_test


kernel_test = _make_decorator(KernelSpec)


def decorate(spec: KernelSpec, function: TestFunction) -> TestFunction:
    """Return the Hypothesis test of ``spec`` with the body ``function``."""
    names = tuple(signature_shown(function).parameters)
    _check_test_function(function, names)
    body = _TestBody(spec, function)
    test = hypothesis.given(case=cases(spec))(
        _with_signature(body.run_drawn, function, names)
    )
    kernel_test = KernelTest(
        spec=spec,
        check_case=_with_signature(body.run, function, names),
        check_rejection=body.check_of_parts(Runner.check_rejection, "rejection"),
        check_edges=body.check_of_parts(
            lambda runner, part, _: check_edges(runner, part), "calls"
        ),
    )
    setattr(test, ATTRIBUTE, kernel_test)
    return _callable_alone(test, function, spec)


def _callable_alone(
    test: TestFunction, function: TestFunction, spec: KernelSpec
) -> TestFunction:
    """Return a Hypothesis test that also runs if it is called without a runner, as in a notebook.

    It is the same test to pytest and Hypothesis: it shares the attributes of ``test``, in which
    both keep settings, examples and seeds.
    """

    def called(**fixtures: Any) -> Tally | None:
        __tracebackhide__ = True
        if RUNNER_FIXTURE not in fixtures:
            return run_test(test, spec, fixtures)
        call_with_room(test, **fixtures)
        return None

    _place_at(called, function)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(called, name, getattr(test, name))
    test.__dict__["__signature__"] = inspect.signature(test)
    called.__dict__ = test.__dict__
    return called


def _check_test_function(function: TestFunction, names: tuple[str, ...]) -> None:
    """Raise :class:`SpecError` for a function that cannot be the body of a kernel's test."""
    received = (
        f"kernel_test: received {function.__qualname__}{signature_shown(function)}"
    )
    owner, _, _ = function.__qualname__.rpartition(".")
    if owner and not owner.endswith("<locals>"):
        raise SpecError(
            f"{received}, a method; accepted: a function outside classes, def test(case)"
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise SpecError(
            f"{received}, which is async; accepted: def, for nothing awaits its case"
        )
    if "case" not in names:
        raise SpecError(
            f"{received}; accepted: a function that takes an argument named case"
        )


class _TestBody:
    """A test function and the spec whose cases it checks."""

    def __init__(self, spec: KernelSpec, function: TestFunction) -> None:
        self.spec = spec
        self.function = function
        self.is_observed = any(name.startswith(OBSERVED) for name in os.environ)

    def run(self, case: Case, **fixtures: Any) -> BoundCase:
        """Call the function with one case; raise if it compared nothing."""
        spec = self.spec
        bound = BoundCase(spec, case, fixtures.pop(RUNNER_FIXTURE))
        bound.runner.now = spec, case  # for errors of the function before its check
        try:
            guarded(lambda: self.function(case=bound, **fixtures))
        except (MemoryError, OSError) as error:  # a test may make the inputs itself
            if not fault_of_machine(error):
                raise
            bound.verdicts = bound.runner.undecided(spec, case, error)
        if not bound.verdicts:
            raise NothingComparedError(
                f"the test of {spec.name} compared nothing: its function must call case.check()"
            )
        return bound

    def run_drawn(self, case: Case, **fixtures: Any) -> None:
        """Call the function with a case that Hypothesis drew, unless an equal one has run."""
        runner: Runner = fixtures[RUNNER_FIXTURE]
        if runner.repeats.is_duplicate(self.spec, case):
            return
        if self.is_observed:
            _observe_case(case)
        verdicts = dict[str, Any]()
        expired = LIMITS.expired
        try:
            verdicts = self.run(case, **fixtures).verdicts
            runner.repeats.add(self.spec, case)
        except BaseException as error:
            verdicts = getattr(error, "verdicts", {})
            runner.repeats.has_failed = True
            if LIMITS.expired > expired:
                runner.repeats.over = case, error
            if isinstance(error, CaseFailure) and _is_to_minimize(runner):
                self.raise_smaller(error, fixtures)
            raise
        finally:
            if self.is_observed:
                _observe_verdicts(verdicts)

    def raise_smaller(self, error: CaseFailure, fixtures: dict[str, Any]) -> None:
        """Raise the failure of a smaller case, if a smaller one fails too."""
        runner: Runner = fixtures[RUNNER_FIXTURE]
        with runner.uncounted():
            smallest = minimal_failure(error, functools.partial(self.run, **fixtures))
        if smallest is not error:
            raise smallest from smallest.__cause__

    def check_of_parts(self, check: Callable[..., None], name: str) -> TestFunction:
        """Return a test that calls ``check`` for each part of the spec and its backends."""

        def run_each(**fixtures: Any) -> None:
            runner: Runner = fixtures[RUNNER_FIXTURE]
            runner.tested = self.spec
            for part, backends in runnable(self.spec, runner.backends):
                with runner.on(backends):
                    check(runner, part, fixtures[name])

        return _with_signature(run_each, self.function, (name,))


def _observe_case(case: Case) -> None:
    """Report the values, the dtype and the kinds of data of a case."""
    data = {
        f"data of {name}": type(recipe).__name__ for name, recipe in case.data.items()
    }
    observe({**case.values, "dtype": case.dtype, **data})


def _observe_verdicts(verdicts: Mapping[str, Any]) -> None:
    """Report the kind of each backend's verdict."""
    observe({f"verdict on {on}": type(v).__name__ for on, v in verdicts.items()})


def _is_to_minimize(runner: Runner) -> bool:
    """Return whether the case that fails is the result of shrinking, and may be made smaller."""
    is_asked = hypothesis.Phase.shrink in hypothesis.settings().phases
    return is_asked and runner.repeats.is_last and runner.may_repeat


def observe(features: Mapping[str, Any]) -> None:
    """Report the features of a case as events of Hypothesis, for its observability."""
    for name, value in features.items():
        hypothesis.event(
            name, payload=value if isinstance(value, int | float) else str(value)
        )


def _with_signature(
    run: Callable[..., object], function: TestFunction, names: tuple[str, ...]
) -> TestFunction:
    """Return a function that calls ``run``, looks like ``function``, and also takes the runner."""

    def wrapper(**arguments: Any) -> None:
        run(**arguments)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind) for name in (*names, RUNNER_FIXTURE)]
    _place_at(wrapper, function)
    functools.update_wrapper(wrapper, function)
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapper


def _place_at(wrapper: Any, function: TestFunction) -> None:
    """Give the code of a wrapper the place of a function: pytest and Hypothesis report it."""
    wrapper.__code__ = wrapper.__code__.replace(
        co_filename=function.__code__.co_filename,
        co_firstlineno=function.__code__.co_firstlineno,
    )

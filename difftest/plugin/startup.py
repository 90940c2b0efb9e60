"""The start of a pytest session: its request, the embedded modules, its backends and runner."""

from __future__ import annotations

import atexit
import functools
import gc
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING

import pytest

from difftest.testing.session.options import (
    MEMORY,
    SESSION,
    Request,
    Session,
    add_options,
    check_request,
    distribute,
    extra_arguments,
    is_campaign,
    read_request,
)

if TYPE_CHECKING:
    from difftest.testing.backends.base import Backend
    from difftest.testing.harness.device_runner import DeviceRunner
    from difftest.testing.harness.runner import Runner


class _FastFinder:
    """An import hook ahead of pytest's own, which is slow for the packages that it rewrites."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, *_: object
    ) -> ModuleSpec | None:
        # Not the package itself: if pytest did not rewrite it, the next session here warns.
        if name.startswith(("difftest.", "hypothesis.", "numpy.", "ml_dtypes.")):
            return PathFinder.find_spec(name, path)
        return None


def start_around_conftests(
    config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Run the hook ``pytest_load_initial_conftests`` around the import of the conftests.

    The request is read before, to install the embedded modules. It is read again after conftests
    have declared their options, and that reading counts.
    """
    namespace = config.known_args_namespace
    if namespace.help or namespace.version:
        result = yield
        add_options(parser, config, args)
        return result
    loaded_before = frozenset(sys.modules)
    early = read_request(config, parser, args, final=False)
    prepared = prepare_session(config, early)
    if getattr(namespace, "hypothesis_profile", None) is not None:
        from difftest.plugin import profiles
        from difftest.testing.harness.profiles import register_profiles

        register_profiles()  # the option may name one, even if no kernel test runs
        config.pluginmanager.register(profiles)
    result = yield
    request = read_request(config, parser, args, final=True)
    if request.backends != early.backends:
        prepared.close()
        prepare_session(config, request)
    add_options(parser, config, args)
    session = start_session(config, request)
    if session.launches is not None:
        session.launches.loaded_before = loaded_before
    config.stash[SESSION] = session
    if request.wants_backends:
        # A kernel that fails to import must not stop other tests.
        extra_arguments(args, "--continue-on-collection-errors")
        if config.pluginmanager.hasplugin("xdist"):
            distribute(request, namespace, args)
    return result


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
    from difftest.plugin.profiles import usual_profile
    from difftest.testing.drawing.examples import make_random_numbers
    from difftest.testing.harness.profiles import default_profile

    done.enter_context(default_profile(usual_profile(request.device)))
    if request.simulate not in (None, "sdk"):
        _install_embedded(done, request)
    make_random_numbers()
    gc.freeze()  # loaded modules stay: garbage collections need not search them
    if config.invocation_params.plugins:
        done.callback(gc.unfreeze)  # a program runs pytest, and continues afterwards
    if is_collecting:
        gc.enable()
    return done


def _install_embedded(done: ExitStack, request: Request) -> None:
    """Install the embedded modules until the stack is closed, if a backend runs on them."""
    from difftest.testing.backends.base import BackendMissingError
    from difftest.testing.backends.selection import select_backends
    from difftest.testing.host.installation import embedded_with_predictions

    # start_session raises the error, when the request is final.
    with suppress(BackendMissingError):
        backends = select_backends(request.simulate, False, request.level)
        if any(backend.name in ("embedded", "plain") for backend in backends):
            done.enter_context(embedded_with_predictions(request.level))


def _at_end(config: pytest.Config, action: Callable[[], None]) -> None:
    """Run a cleanup at the session's end, or at exit in a campaign, whose cases run later."""
    if is_campaign():
        atexit.register(action)
    else:
        config.add_cleanup(action)


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
        from difftest.plugin.launches import LaunchCounts
        from difftest.testing.backends.embedded import EmbeddedSimulator

        session.runner = _make_runner(config, request)
        if any(isinstance(it, EmbeddedSimulator) for it in session.runner.backends):
            session.launches = LaunchCounts()
        gc.freeze()  # modules loaded here and by conftests stay, too
        if request.case is None and not request.device:
            from difftest.tools.scale.regressions import with_findings

            session.runner = with_findings(config, request, session.runner)
    return session


def _make_runner(config: pytest.Config, request: Request) -> Runner:
    """Return a runner of the requested backends."""
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
    if request.device:
        return _make_device_runner(config, request, backends)
    tracer = None
    if request.case is None:
        from difftest.testing.harness.tracer import BranchTracer

        tracer = BranchTracer()
        config.add_cleanup(tracer.close)
    return Runner(
        backends,
        verbose=config.get_verbosity() > 0,
        strict=request.strict,
        exact=request.exact,
        beside=run_beside_sdk,
        branch_tracer=tracer,
    )


def _make_device_runner(
    config: pytest.Config, request: Request, backends: tuple[Backend, ...]
) -> DeviceRunner:
    """Return a runner of a device's backends; the config's cleanup closes them."""
    from difftest.testing.backends.embedded import run_beside_sdk
    from difftest.testing.backends.sdk import close_backend
    from difftest.testing.harness.device_runner import DeviceRunner, arbiter_for

    for backend in backends:
        config.add_cleanup(functools.partial(close_backend, backend))
    return DeviceRunner(
        backends, arbiter_for(backends), exact=request.exact, beside=run_beside_sdk
    )

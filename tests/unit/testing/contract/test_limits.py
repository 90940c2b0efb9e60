"""Side effects of a call: random states of any generator are compared, and restored."""

import errno
import gc
import os
import random
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from difftest.testing.contract import limits
from difftest.testing.contract.limits import (
    LIMITS,
    USED,
    CaseLimitError,
    fault_of_machine,
    limit,
    within_limits,
)
from tests.every import every


@pytest.fixture(params=[np.random.MT19937, np.random.PCG64])
def generator(request):
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(request.param(7))
    yield
    np.random.set_bit_generator(before)


@pytest.mark.usefixtures("generator")
def test_a_random_state_that_a_call_changes_is_reported_for_any_generator():
    before = np.random.get_state(legacy=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        within_limits(lambda: None, "quiet")
    with pytest.warns(
        UserWarning, match="drawing changed NumPy's random state, put back"
    ):
        within_limits(np.random.random, "drawing")
    np.testing.assert_equal(np.random.get_state(legacy=False), before)


def test_a_number_kept_for_later_is_part_of_the_state():
    """A normally distributed number leaves a second one, stored next to the generator."""
    state = np.random.get_state(legacy=False)
    np.random.randn()
    with pytest.warns(
        UserWarning, match="drawing changed NumPy's random state, put back"
    ):
        within_limits(np.random.randn, "drawing")
    assert np.random.get_state(legacy=False)["has_gauss"]
    np.random.set_state(state)


def leave(name, value):
    return lambda: setattr(sys.modules[name.split(".")[0]], name.split(".")[1], value)


@every(
    "what, change",
    [
        ("NumPy's error settings", lambda: np.seterr(all="raise")),
        ("NumPy's print options", lambda: np.set_printoptions(precision=1)),
        ("NumPy's random state", lambda: np.random.seed(1)),
        ("Python's random state", random.random),
        ("", leave("os._exit", print)),
        ("", leave("sys.stdout", None)),
    ],
)
def test_a_change_between_calls_is_reported_for_the_call_that_made_it(what, change):
    """The mark before one call does not serve the next: the test itself may draw between."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for at in range(4):
            random.random(), np.random.random()
            before = (
                random.getstate(),
                repr(np.random.get_state()),
                np.geterr(),
                os._exit,
            )
            before += (np.get_printoptions(), sys.stdout)
            within_limits(change if at == 2 else int, f"call {at}")
            after = (
                random.getstate(),
                repr(np.random.get_state()),
                np.geterr(),
                os._exit,
            )
            assert before == (*after, np.get_printoptions(), sys.stdout)
    said = f"call 2 changed {what}, put back after the call"
    assert [str(one.message) for one in told] == [said] * bool(what)


def test_a_time_that_is_over_at_once_leaves_no_clock(monkeypatch):
    before = threading.active_count()
    start = threading.Thread.start
    slow = lambda thread: start(thread) or time.sleep(1)  # noqa: E731
    monkeypatch.setattr(threading.Thread, "start", slow)
    with limit(1e-9, None), pytest.raises(CaseLimitError):
        within_limits(lambda: None)
    assert threading.active_count() == before


def test_a_limit_that_nothing_reaches_is_one():
    with limit(float("inf"), float("inf") if USED.exists() else None):
        assert within_limits(lambda: "done") == "done"


def test_stopping_a_call_needs_none_of_its_memory():
    before = threading.stack_size(2**26)
    try:
        with limit(60.0, 32 if USED.exists() else None):
            assert within_limits(lambda: "done") == "done"
    finally:
        threading.stack_size(before)


def test_the_tightest_limit_holds():
    with limit(2.0, None), limit(1.0, None), limit(3.0, None):
        assert LIMITS.seconds == 1.0


@every(
    "error, lack",
    [
        (MemoryError("Unable to allocate 8 GiB"), "memory: MemoryError: Unable"),
        (OSError(errno.ENOMEM, "Cannot allocate"), "memory: OSError: "),
        (OSError(errno.ENOSPC, "No space left"), "space on a disk: OSError: "),
        (OSError(errno.EMFILE, "Too many open files"), "open files: OSError: "),
    ],
)
def test_a_fault_of_the_machine_is_distinguished_from_others(error, lack):
    assert fault_of_machine(error).startswith(f"this computer has too little {lack}")


@every(
    "error",
    [None, ValueError(), FileNotFoundError(2, "no"), CaseLimitError("needed more")],
)
def test_errors_that_are_not_faults_of_the_machine(error):
    assert fault_of_machine(error) == ""


class Destroyed:
    """Is destroyed only after a call's time is over."""

    def __del__(self):
        while not LIMITS.stops:
            pass


def collected(phase, info):
    """A callback of the garbage collector that lasts until a call's time is over."""
    while phase == "stop" and not LIMITS.stops:
        pass


def destroy():
    Destroyed()


def collect():
    gc.callbacks.append(collected)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collected)


@every("swallow", [destroy, collect])
def test_an_error_of_the_clock_that_python_swallows_is_not_reported_and_comes_again(
    swallow, monkeypatch
):
    """Pytest would fail the test for what Python reports."""
    monkeypatch.setattr(limits, "AGAIN", 0.02)
    reported = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda told: reported.append(told.exc_type)
    )

    def lasts():
        swallow()
        while True:
            pass

    hook = sys.unraisablehook
    with limit(0.05, None), pytest.raises(CaseLimitError, match="ran for more than"):
        within_limits(lasts)
    assert reported == []
    assert sys.unraisablehook is hook


def test_errors_of_the_call_itself_are_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda told: reported.append(told.exc_type)
    )

    class Broken:
        def __del__(self):
            raise ValueError("of the kernel's")

    with limit(60, None):
        within_limits(lambda: Broken() and None)
    assert reported == [ValueError]

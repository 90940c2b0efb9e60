"""The limit in time of a test of another's suite."""

import signal
import time

import pytest

from conformance.limits import WAITING, limited


def work(seconds):
    """Use processor time."""
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass


def test_a_busy_process_is_ended_at_the_limit():
    text = r"the test took longer than 0\.2 s"
    with pytest.raises(TimeoutError, match=text), limited(0.2, "the test"):
        work(60)


def test_a_waiting_process_is_ended_at_ten_times_the_limit():
    with pytest.raises(TimeoutError, match="it took longer"), limited(0.05, "it"):
        time.sleep(60 * WAITING)


def test_a_busy_machine_does_not_count():
    with limited(0.3, "it"):
        time.sleep(0.6)


def test_the_signal_is_left_as_it_was():
    before = signal.getsignal(signal.SIGALRM)
    with limited(1, "it"):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before

"""A block ends after its time, also where it catches the error."""

import signal
import threading
import time

import pytest

from difftest.support import time_limit as module
from difftest.support.time_limit import TimeLimitError, time_limit


def test_a_block_that_catches_the_error_gets_it_again(monkeypatch):
    monkeypatch.setattr(module, "_AGAIN", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    caught = []

    def work():
        with time_limit(0.05) as limit:
            try:
                time.sleep(60)
            except BaseException as error:
                caught.append((error, limit))
            time.sleep(60)

    with pytest.raises(TimeLimitError):
        work()
    ((error, limit),) = caught
    assert type(error) is TimeLimitError
    assert limit.is_over
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_block_that_ends_in_time_is_left_alone():
    with time_limit(600.0) as limit:
        pass
    assert not limit.is_over


def test_another_thread_has_no_limit():
    over = []

    def work():
        with time_limit(0.01) as limit:
            time.sleep(0.05)
        over.append(limit.is_over)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert over == [False]

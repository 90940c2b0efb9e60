"""BLAS threads while kernels are simulated."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.program_scheduler import _blas, one_thread
from difftest.tools.mutants import campaign
from difftest.tools.scale import engine
from tests.every import every


def blas_threads():
    """Threads of NumPy's BLAS: other packages bring their own, and other tests import them."""
    counts = {one["num_threads"] for one in _blas().info()}
    assert len(counts) == 1, "NumPy here has no BLAS whose threads can be counted"
    return counts.pop()


def test_a_kernel_runs_with_one_thread_and_leaves_as_many_as_there_were():
    inside = []

    def kernel(x, fails):
        inside.append(blas_threads())
        assert not fails
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    data = np.ones((2, 3), np.float32)
    with threadpool_limits(2, "blas"):
        launch(kernel, [data, False])
        assert blas_threads() == 2
        with pytest.raises(AssertionError):
            launch(kernel, [data, True])
        assert blas_threads() == 2
    assert inside == [1, 1]


@every("module", [campaign, engine])
def test_workers_of_mutate_and_sweep_have_one_thread(module, monkeypatch):
    """Threads are limited outside of kernels, too: several processes would wait for a core."""
    seen, orders = [], SimpleNamespace(memory=None, timeout=None, cases={}, test="")
    orders.collect = lambda work: work({})
    monkeypatch.setattr(module, "serve_tasks", lambda *_: seen.append(blas_threads()))
    monkeypatch.setattr(engine, "with_spec", lambda test, work: work(None))
    with threadpool_limits(2, "blas"):
        (getattr(module, "serve_mutants", None) or module.serve_points)(
            SimpleNamespace(send=None), orders
        )
    assert seen == [1]


def test_scopes_of_two_threads_that_overlap_leave_as_many_as_there_were():
    entered, left = threading.Event(), threading.Event()

    def other():
        with one_thread():
            entered.set()
            left.wait()

    with threadpool_limits(2, "blas"):
        thread = threading.Thread(target=other)
        with one_thread():
            thread.start()
            entered.wait()
            assert blas_threads() == 1
        left.set()
        thread.join()
        assert blas_threads() == 2

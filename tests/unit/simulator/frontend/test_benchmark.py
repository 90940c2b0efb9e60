"""``nki.benchmark``: predictions of the installed model, or a clear error."""

import logging

import numpy as np
import pytest

from difftest.simulator import KernelError, NotModelledError, Trace
from difftest.simulator.entry.install import embedded


class Latency:
    def get_latency_percentile(self, percentile):
        return 100.0 + percentile

    def get_interval(self):
        return 90.0, 240.0

    caution = "most of it is assumed"

    def profile(self):
        return {"predicted": True}


class Predictor:
    def __init__(self):
        self.calls = []

    def __call__(self, trace, machine, dge):
        self.calls.append((trace, machine, dge))
        return Latency()


@pytest.fixture
def predictor():
    return Predictor()


@pytest.fixture
def nki(predictor):
    with embedded(predictor=predictor):
        import neuronxcc.nki as nki

        yield nki


@pytest.fixture
def double(nki):
    import neuronxcc.nki.language as nl

    @nki.jit
    def double(x, factor=2.0):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), factor, dtype=x.dtype))
        return out

    return double


X = np.ones((4, 3), np.float32)


def test_predicts_from_the_trace(nki, double, predictor, capsys):
    bench = nki.benchmark(double, warmup=1, iters=10)
    out = bench(X, factor=3.0)
    assert (out == 3.0).all()
    latency = bench.benchmark_result.nc_latency
    assert [latency.get_latency_percentile(p) for p in (0, 50, 99, 100)] == [
        100,
        150,
        199,
        200,
    ]
    assert latency.predicted
    ((trace, machine, dge),) = predictor.calls
    assert isinstance(trace, Trace)
    assert trace.count("dma_copy") == 2
    assert machine.name == "trn2"
    assert dge
    assert latency.interval == (90.0, 240.0)
    text = capsys.readouterr().out
    assert (
        "double: predicted latency p50 150.0 us, p99 199.0 us; on a device between 90.0"
        in text
    )
    assert "most of it is assumed" in text


def test_the_output_says_that_the_latency_is_predicted(nki, double, capsys):
    nki.benchmark(double)(X)
    text = capsys.readouterr().out
    assert "predicted" in text
    assert "nothing was measured" in text


@pytest.mark.parametrize("form", ["with options", "without brackets", "called first"])
def test_benchmark_decorates_with_and_without_arguments(nki, double, form):
    if form == "with options":
        bench = nki.benchmark(warmup=5, iters=20)(double)
    elif form == "without brackets":
        bench = nki.benchmark(double)
    else:
        bench = nki.benchmark()(double.function)
    bench(X)
    assert bench.__name__ == "double"
    assert bench.benchmark_result.nc_latency.get_latency_percentile(99) == 199


def test_disable_dge_reaches_the_model(nki, double, predictor):
    nki.benchmark(double, additional_compile_opt="--disable-dge")(X)
    assert predictor.calls[0][2] is False


def test_an_undocumented_percentile_is_rejected(nki, double):
    bench = nki.benchmark(double)
    bench(X)
    with pytest.raises(
        KernelError, match="a percentile of nc_latency is one of the accepted"
    ) as caught:
        bench.benchmark_result.nc_latency.get_latency_percentile(95)
    assert caught.value.limit == "0, 1, 10, 25, 50, 90, 99, 100"


def test_an_annotation_stands_for_an_argument_of_its_shape(nki, double):
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt

    bench = nki.benchmark(double)
    result = bench(nt.tensor[[128, 64], nl.bfloat16])
    assert (result.shape, result.dtype) == ((128, 64), np.dtype(nl.bfloat16))
    assert bench.benchmark_result.nc_latency.get_latency_percentile(50) > 0


def test_an_unknown_option_is_refused(nki, double):
    with pytest.raises(NotModelledError, match="argument 'repeat'"):
        nki.benchmark(double, repeat=3)


def test_without_a_model_it_refuses():
    with embedded():
        import neuronxcc.nki as nki

        bench = nki.benchmark(lambda x: x)
        with pytest.raises(NotModelledError, match="without a timing model") as caught:
            bench(X)
    assert "difftest run" in caught.value.remedy


def test_the_level_that_the_sdk_adds_to_logging_is_there_for_as_long(
    predictor, monkeypatch
):
    # there for the session, with --simulate
    monkeypatch.delattr(logging, "OFF", raising=False)
    with embedded(predictor=predictor):
        assert logging.OFF > logging.CRITICAL
        with embedded():
            assert logging.OFF > logging.CRITICAL
        assert logging.OFF > logging.CRITICAL
    assert not hasattr(logging, "OFF")


def test_a_function_that_simulates_can_be_benchmarked(nki, double, predictor):
    """As the course's harness does under --simulate."""

    def wrapper(*args, **kwargs):
        return nki.simulate_kernel(double, *args, **kwargs)

    bench = nki.benchmark(warmup=5, iters=20)(wrapper)
    assert (bench(X, factor=4.0) == 4.0).all()
    assert len(predictor.calls[0][0]) > 0


def test_no_result_before_a_call(nki, double):
    with pytest.raises(AttributeError):
        nki.benchmark(double).benchmark_result  # noqa: B018 - the access is the test

"""Whose fault it is when a kernel does not run: the kernel's, a rule's, or the simulator's own."""

import numpy as np

from difftest import simulator
from difftest.simulator.entry.install import embedded
from difftest.testing.backends.base import Crashed, KernelCall, Rejected, Unsupported
from difftest.testing.backends.embedded import EmbeddedSimulator
from tests.every import every

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import nki as todays


def run(kernel):
    return EmbeddedSimulator().run(
        KernelCall(kernel=kernel, inputs=(np.ones((2, 2), np.float32),))
    )


def planted(body):
    """A function that its code object places in the simulator."""
    namespace = {"np": np}
    source = f"def planted(argument=None):\n    {body}\n"
    exec(compile(source, simulator.__file__, "exec"), namespace)
    return namespace["planted"]


@every(
    "body",
    [
        "return [][1]",
        "return None.shape",
        "raise ValueError('shapes')",
        "assert False, 'a state that cannot be'",
        "return np.ones(2) + np.ones(3)",
        "return np.linalg.cholesky(np.ones(2))",
    ],
)
def test_a_raw_error_out_of_the_simulator_is_a_defect_of_the_simulator(body):
    function = planted(body)

    @nki.jit
    def kernel(a):
        return function()

    outcome = run(kernel)
    assert isinstance(outcome, Crashed)
    assert outcome.in_backend


def test_endless_recursion_is_the_error_of_whose_code_calls_itself():
    """The innermost call says nothing: any call may be one too many."""

    @nki.jit
    def kernel(a, depth=0):
        return nl.load(a) if depth < 0 else kernel(a, depth + 1)

    def run_below(frames):
        return run_below(frames - 1) if frames else run(kernel)

    for frames in range(6):
        outcome = run_below(frames)
        assert isinstance(outcome.error, RecursionError)
        assert not outcome.in_backend
    function = planted("return planted(argument)")

    @nki.jit
    def other(a):
        return function()

    outcome = run(other)
    assert isinstance(outcome.error, RecursionError)
    assert outcome.in_backend


def raises(error):
    @nki.jit
    def kernel(a):
        raise error

    return kernel


@nki.jit
def slip_in_numpy(a):
    return np.ones(2) + np.ones(3)


@nki.jit
def slip_in_a_callback(a):
    return planted("return argument()")(lambda: [][1])


@nki.jit
def slip_in_a_call(a):
    return nl.load()


@every(
    "kernel",
    [
        raises(TypeError("no")),
        raises(ValueError("no")),
        raises(NotImplementedError("no")),
        slip_in_numpy,
        slip_in_a_callback,
        slip_in_a_call,
    ],
)
def test_a_raw_error_out_of_the_kernel_is_the_kernels(kernel):
    outcome = run(kernel)
    assert isinstance(outcome, Crashed)
    assert not outcome.in_backend


def test_a_misspelt_name_is_the_kernels_slip_with_the_name_that_was_meant():
    misspelt = (
        (todays, "jitt", "jit"),
        (todays.language, "ndaray", "ndarray"),
        (todays.language, "flat32", "float32"),
        (todays.isa, "nc_matmull", "nc_matmul"),
        (todays.language.tile_size, "pmx", "pmax"),
        (todays.collectives, "all_gathr", "all_gather"),
        (nki, "benchmrk", "benchmark"),
        (nl, "laod", "load"),
        (nisa, "tensor_redcue", "tensor_reduce"),
        (nki.compiler, "sbuff", "sbuf"),
    )
    for module, name, meant in misspelt:
        outcome = run(nki.jit(using(module, name)))
        assert isinstance(outcome, Crashed), name
        assert not outcome.in_backend, name
        assert outcome.error.remedy == f"did you mean {meant}?", name
        assert outcome.error.location.text == "getattr(module, name)", name
        assert not hasattr(module, name)
    assert "remedy" not in str(run(nki.jit(using(nl, "zzz"))).error)


def using(module, name):
    def kernel(a):
        getattr(module, name)

    return kernel


def test_the_kernels_own_assertion_is_its_refusal():
    assert isinstance(run(raises(AssertionError("no"))), Rejected)


def test_an_unmodelled_feature_is_not_a_rejection():
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        return nisa.nc_matmul(tile, tile, perf_mode="transpose")

    outcome = run(kernel)
    assert isinstance(outcome, Unsupported)
    assert "not modelled by the embedded simulator" in str(outcome.error)


def test_an_error_after_the_kernel_has_returned_names_no_line_of_ours():
    outcome = run(lambda a: 3)
    assert isinstance(outcome, Rejected)
    assert "where:" not in str(outcome.error)

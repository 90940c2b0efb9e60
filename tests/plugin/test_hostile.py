"""Kernels and references that loop, eat memory, fork or leave something behind.

Each has a verdict that names it, the run continues, and later cases are not affected.
"""

import contextlib
import functools
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from difftest.testing.contract import limits
from difftest.testing.contract.reference import ReferenceDefect, call_reference
from difftest.testing.harness import tracer
from difftest.testing.harness.kernel_calls import run_kernel
from difftest.testing.host import progress

KERNELS = '''
import os, random, sys
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def recurses():
    recurses()


def eats():
    kept = []
    while True:
        kept.append(bytearray(2**24))


def exits():
    sys.exit(0)


def quits():
    os._exit(0)


def forks():
    if os.fork():
        os.wait()


class Mute(ValueError):
    def __str__(self):
        raise KeyError("text")


def mutes():
    raise Mute


def sets():
    np.seterr(all="raise"), np.random.seed(1), random.seed(1), np.set_printoptions(precision=1)


def copy(a, b):
    """A right kernel, that of a case which follows a hostile one."""
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(src=a, dst=tile)
    nisa.dma_copy(src=tile, dst=result)
    return result


def hostile(before, after=lambda a, result: result):
    def kernel(a, b):
        before()
        return after(a, copy(a, b))

    return nki.jit(kernel)


def reference(before, after=lambda a, result: result):
    def reference(a, b):
        before()
        return after(a, a)

    return reference


def twice(a, result):
    return result, result


def nothing(a, result):
    return None


def own_input(a, result):
    nisa.dma_copy(src=result, dst=a)
    return result


def same_input(a, result):
    return a


def first_row(a, result):
    return a[0]


def complex_numbers(a, result):
    return a.astype(complex)


def written(a, result):
    a[0] = 1
    return a
'''

TESTS = """
import random
import kernels as k
import numpy as np
from difftest import kernel_test
from hypothesis import Phase, settings
from kernels import *


def add(name, kernel, reference):
    @settings(max_examples=1, phases=[Phase.generate])
    @kernel_test(kernel=kernel, reference=reference, domain={"n": (4,)}, edges=False,
                 inputs={"a": "n n", "b": "n n"})
    def test(case):
        before = random.getstate(), np.random.get_state()[1].tolist()
        try:
            case.check()
        finally:
            assert np.geterr()["over"] == "warn" and np.get_printoptions()["precision"] == 8
            assert before == (random.getstate(), np.random.get_state()[1].tolist())
    globals()["test_" + name] = test


RIGHT = hostile(int)
for name in ("recurses", "eats", "exits", "quits", "forks", "mutes", "sets"):
    add(f"kernel_{name}", hostile(getattr(k, name)), reference(int))
    add(f"reference_{name}", RIGHT, reference(getattr(k, name)))
    add(f"after_{name}", RIGHT, reference(int))
for name in ("twice", "nothing", "own_input", "same_input"):
    add(f"kernel_{name}", hostile(int, getattr(k, name)), reference(int))
for name in ("twice", "nothing", "first_row", "complex_numbers", "written"):
    add(f"reference_{name}", RIGHT, reference(int, getattr(k, name)))


@kernel_test(kernel=RIGHT, reference=reference(int), domain={"n": (4,)}, edges=False,
             inputs={"a": "n n", "b": "n n"})
def test_own_mutes(case):
    k.mutes()
"""

BROKE = "* the kernel crashed: {}"
DEFECT = "*cannot be judged: the reference reference {}"
TOLD = {
    "kernel_recurses": BROKE.format("RecursionError: *"),
    "kernel_eats": BROKE.format("CaseLimitError: needed more than 99 MiB of memory*"),
    "kernel_exits": BROKE.format("KernelExit: SystemExit: 0 *"),
    "kernel_quits": BROKE.format("KernelExit: SystemExit: os._exit(0) *"),
    "kernel_forks": BROKE.format("CaseLimitError: forked, *"),
    "kernel_mutes": "*: * Mute: its text raises KeyError",
    "own_mutes": "E   kernels.Mute: *",
    "kernel_twice": "* the kernel returned 2 arrays, the reference 1",
    "kernel_nothing": "* the kernel returned no arrays, the reference 1",
    "kernel_same_input": "* the kernel returns its input a itself, without a write to it",
    "kernel_own_input": "*KernelError: an instruction was to write to a parameter",
    "reference_recurses": DEFECT.format("crashed"),
    "reference_eats": "  remedy:      raise the limit, or let the reference need less",
    "reference_exits": DEFECT.format("crashed"),
    "reference_quits": DEFECT.format("crashed"),
    "reference_forks": DEFECT.format("forked, *"),
    "reference_mutes": "* only the reference rejects the case: Mute: its text raises KeyError",
    "reference_twice": "* the kernel returned 1 array, the reference 2",
    "reference_nothing": DEFECT.format("returned no array of real numbers"),
    "reference_first_row": "* the kernel's shape is (4, 4), the reference's (4,)",
    "reference_complex_numbers": DEFECT.format("returned no array of real numbers"),
    "reference_written": DEFECT.format("wrote to its argument a"),
}


def test_a_hostile_kernel_is_named_and_harms_nothing_else(project, monkeypatch):
    """Modules that end the program, too: the others run."""
    # whichever plugins are installed; half a second
    monkeypatch.setenv("HYPOTHESIS_NO_PLUGINS", "1")
    project.pytester.makepyfile(
        kernels=KERNELS,
        test_hostile=TESTS,
        test_exits="import sys\nsys.exit(0)\n",
        test_leaves="import os\nos._exit(0)\n",
        test_raises="1 / 0",
    )
    project.pytester.makeconftest(
        "import sys\nfrom difftest.plugin import failure_output\n"
        "failure_output.rerun_alone = lambda config, failure: ''\n"
        "sys.modules['libcst'] = None  # Hypothesis imports it to write patches: half a second"
    )
    result = project.run_apart(
        "--simulate", "--case-memory=99", "--tb=short", "-p", "no:anyio"
    )
    result.assert_outcomes(failed=len(TOLD), passed=7 + 2, errors=3, warnings=None)
    result.stdout.fnmatch_lines(
        [
            "test_exits.py ends the program:",
            "*line 2*",
            "SystemExit: 0",
            "test_leaves.py ends the program:",
            "SystemExit: os._exit(0)",
        ]
    )
    text = result.stdout.str()
    for name, line in TOLD.items():
        report = text.partition(f"_ test_{name} _")[2].partition("\n___")[0]
        pytest.LineMatcher(report.splitlines()).fnmatch_lines([line])
    for what in ("kernel", "a reference"):
        changed = (
            "NumPy's print options and NumPy's random state and Python's random state"
        )
        result.stdout.fnmatch_lines([f"*: {what} changed *{changed}, put back*"])


HIDDEN = """
import os, signal, sys
import pdb  # pytest imports it; since Python 3.14 it imports asyncio
import pytest

for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None
for owner, names in ((signal, ("SIGALRM", "pthread_kill", "setitimer")),
                     (os, ("fork", "register_at_fork", "getuid", "sysconf", "forkpty"))):
    for name in names:
        delattr(owner, name)
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_nothing_of_posix_is_needed(project, monkeypatch):
    project.add_test()
    project.pytester.makepyfile(start=HIDDEN)
    # anyio's plugin, which comes with mcp, imports asyncio, and that needs what is hidden; so
    # does psutil, which Hypothesis imports for HypoFuzz; platformdirs has a plugin, too
    monkeypatch.setenv("HYPOTHESIS_NO_PLUGINS", "1")
    arguments = ["--simulate", "--case-timeout=60"]
    arguments += [f"-pno:{name}" for name in ("cacheprovider", "anyio", "platformdirs")]
    result = project.pytester.run(sys.executable, "start.py", *arguments)
    result.assert_outcomes(passed=1)


def test_a_limit_that_is_no_number_or_not_to_be_had_is_a_usage_error(
    project, monkeypatch
):
    project.add_test()
    result = project.run("--simulate", "--case-timeout=soon")
    result.stderr.fnmatch_lines(
        ["ERROR: --case-timeout: received soon; accepted: a number above*"]
    )
    monkeypatch.setattr(limits, "USED", limits.Path("nowhere"))
    result = project.run("--simulate", "--case-memory=1")
    result.stderr.fnmatch_lines(
        ["ERROR: --case-memory: this system cannot limit a process*"]
    )


MACHINE = """
import sys

from difftest.testing.harness import differential
from difftest.testing.contract.spec import KernelSpec

calls = 0
inputs_by_name = KernelSpec.inputs_by_name

def build(spec, case):
    global calls
    if sys._getframe(1).f_globals["__name__"] == differential.__name__:
        calls += 1
        if calls in (2, 3):
            raise MemoryError("Unable to allocate 8. GiB")
    return inputs_by_name(spec, case)

KernelSpec.inputs_by_name = build

def pytest_unconfigure():
    KernelSpec.inputs_by_name = inputs_by_name
"""
ATE = "this computer has too little memory: MemoryError: Unable to allocate 8. GiB"


def test_a_fault_of_the_machine_while_an_input_is_made_is_no_verdict(project):
    """Hypothesis would run the case again, where there is memory, and call the test flaky."""
    project.add_test()
    project.pytester.makeconftest(MACHINE)
    result = project.run("--simulate")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"inconclusive: * of add: {ATE}*"])


NARROW = """
import numpy as np
from difftest import kernel_test
from kernel import add

SPEC = {"domain": {"n": (1, 2)}, "inputs": {"a": "n n", "b": "n n"}}

def eats(a, b):
    raise MemoryError("Unable to allocate 8. GiB")

def reference(a, b):
    return a.astype(np.float64) + b

@kernel_test(kernel=add, reference=eats, **SPEC)
def test_reference(case):
    case.check()

@kernel_test(kernel=add, reference=reference, **SPEC)
def test_own(case):
    eats(*case.inputs)

@kernel_test(kernel=eats, reference=reference, **SPEC)
def test_kernel(case):
    case.check()
"""


def test_where_no_case_has_the_memory_the_remedy_is_not_to_mend_anything(project):
    project.pytester.makepyfile(test_narrow=NARROW)
    result = project.run("--simulate")
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    assert text.count(ATE) > 3
    assert "fix the reference" not in text
    assert "Flaky" not in text
    assert "crashed" not in text
    assert "run fewer processes at once, or give the domain smaller sizes" in text


SLEEPS = """
import time
from difftest import kernel_test
from hypothesis import Phase, settings
from kernel import add


def reference(a, b):
    time.sleep(0.2)
    return a + b


@settings(max_examples=1, phases=[Phase.generate])
@kernel_test(kernel=add, reference=reference, domain={"m": (3,)}, inputs={"a": "m 2", "b": "m 2"},
             edges=False)
def test_add(case):
    case.check()
"""


def test_a_case_that_takes_long_is_named_while_it_runs(project, monkeypatch, capfd):
    before = threading.active_count()
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.1)
    monkeypatch.setattr(progress, "CHECK_SECONDS", 0.02)
    project.pytester.makepyfile(test_sleeps=SLEEPS)
    for options, end in (
        ((), " s; --case-timeout stops it\n"),
        (("--case-timeout=9",), " s\n"),
    ):
        project.run("--simulate", *options).assert_outcomes(passed=1)
        told = capfd.readouterr().err
        assert "difftest: test_sleeps.py::test_add: add, at m=3, " in told
        # before there is a case
        assert "difftest: test_sleeps.py::test_add has run for " in told
        assert end in told
    assert threading.active_count() == before


def test_a_kernel_that_catches_every_error_ends_with_its_process(project):
    project.pytester.makeconftest(
        "from difftest.testing.contract import limits\nlimits.AGAIN = 0.01"
    )
    swallowing = (
        "while True:\n        try: time.sleep(9)\n        except BaseException: pass"
    )
    project.pytester.makepyfile(
        test_sleeps=SLEEPS.replace("time.sleep(0.2)", swallowing)
    )
    result = project.run_apart("--simulate", "--case-timeout=0.1")
    assert result.ret == 1
    result.stderr.fnmatch_lines(
        ["difftest: test_sleeps.py::test_add catches BaseException: its *"]
    )


ENDLESS = """
from difftest import kernel_test, sizes
from kernel import add
from reference_add import add as reference


def endless(a, b):
    n = 0
    if a.shape[0] > 2:
        with open("runs", "a") as file:
            file.write("run ")
        while True:
            n += 1
    return add(a, b)


@kernel_test(kernel=endless, reference=reference, edges=False,
             domain={"m": sizes(1, 128)}, inputs={"a": "m 2", "b": "m 2"})
def test_add(case):
    case.check()
"""


@pytest.mark.parametrize(
    "watch", [tracer.BranchTracer, functools.partial(tracer.BranchTracer, None)]
)
def test_an_endless_kernel_runs_once_and_nothing_shrinks(
    project, monkeypatch, watch, fresh_runs
):
    """Also where lines are watched by ``sys.settrace``, as before Python 3.12."""
    monkeypatch.setattr(tracer, "BranchTracer", watch)
    project.pytester.makepyfile(test_endless=ENDLESS)
    result = project.run("--simulate", "--case-timeout=0.2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ran for more than 0.2 s (--case-timeout)"])
    assert (project.pytester.path / "runs").read_text() == "run "


def loops():
    while True:
        with contextlib.suppress(Exception):
            sum(range(100))


def sleeps():
    time.sleep(1000)


def loses():
    type("Slow", (), {"__del__": lambda _: sleeps()})()
    loops()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", [loops, sleeps, loses])
def test_an_endless_kernel_is_stopped_and_named(monkeypatch, function):
    """Also where Python swallows the error that stops it."""
    monkeypatch.setattr(limits, "AGAIN", 0.05)
    monkeypatch.setattr(limits.LIMITS, "seconds", 0.05)
    with pytest.raises(ReferenceDefect, match="ran for more than 0") as caught:
        call_reference(lambda: function(), {}, {})
    assert caught.value.happened.endswith("ran for more than 0.05 s (--case-timeout)")
    backend = SimpleNamespace(run=lambda call: function())
    outcome = run_kernel(backend, None)
    assert str(outcome.error) == "ran for more than 0.05 s (--case-timeout)"


def test_a_loop_is_stopped_without_signals_too(monkeypatch):
    monkeypatch.delattr(limits.signal, "SIGALRM", raising=False)
    monkeypatch.setattr(limits.LIMITS, "seconds", 0.05)
    for _ in range(3):
        with pytest.raises(limits.CaseLimitError, match="ran for more than 0"):
            limits.within_limits(loops)
    monkeypatch.setattr(limits.LIMITS, "seconds", 60)
    assert limits.within_limits(lambda: 7) == 7


REFUSING = """
from dataclasses import dataclass
from difftest import kernel_test
from kernel import add
from reference_add import add as right

@dataclass(frozen=True)
class Frozen(Exception):
    text: str

class Refuses(Exception):
    @property
    def __traceback__(self):
        raise KeyError("no traceback")

    @__traceback__.setter
    def __traceback__(self, value):
        raise TypeError("no traceback")

SPEC = {"domain": {"n": (1, 2)}, "inputs": {"a": "n n", "b": "n n"}, "edges": False}

def raising(error):
    def raises(a, b):
        raise error("mine")

    return raises

for error in (Frozen, Refuses):
    @kernel_test(kernel=raising(error), reference=right, **SPEC)
    def test_kernel(case):
        case.check()

    @kernel_test(kernel=add, reference=raising(error), **SPEC)
    def test_reference(case):
        case.check()

    def own(raises):
        def test_own(case):
            raises(None, None)

        return kernel_test(kernel=add, reference=right, **SPEC)(test_own)

    test_own = own(raising(error))

    for test in (test_kernel, test_reference, test_own):
        globals()[f"{test.__name__}_{error.__name__.lower()}"] = test
    del test_kernel, test_reference, test_own, test
"""


def test_an_error_that_refuses_its_traceback_is_named(project):
    project.pytester.makepyfile(test_refusing=REFUSING)
    result = project.run("--simulate")
    result.assert_outcomes(failed=6)
    text = result.stdout.str()
    for error in ("Frozen", "Refuses"):
        said = f"{error}: mine (an error that refuses its __traceback__)"
        assert f"the kernel crashed: OpaqueError: {said}" in text
        assert f"received:    OpaqueError: {said}" in text
        assert f"E       difftest.simulator.errors.OpaqueError: {said}" in text

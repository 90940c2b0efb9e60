"""``pytest --device`` from end to end, against replacements of the SDK's packages."""

import pytest

from difftest.testing.backends import embedded
from difftest.testing.backends.device import core as device
from tests.plugin.conftest import REFERENCE
from tests.unit.testing.backends.conftest import PROBES
from tests.unit.testing.backends.sdk_standin import forget, write_classic, write_newer

KERNEL = """
import {package} as nki
import {package}.language as nl

@nki.jit
def add(a, b):
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.add(nl.load(a), nl.load(b)))
    return result

@nki.jit
def wrong_from_three_rows(a, b):
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.add(nl.load(a), nl.load(b)))
    if a.shape[0] > 2:
        nl.store(result, nl.load(a) * 3)
    return result

@nki.jit
def add_to(a, b):
    nl.store(a, nl.add(nl.load(a), nl.load(b)))
    return a

@nki.jit
def add_to_and_double(a, b):
    nl.store(a, nl.add(nl.load(a), nl.load(b)))
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.add(nl.load(a), nl.load(a)))
    return result

@nki.jit
def forgets(a, b):
    nl.store(a, nl.load(b))
    return a
"""

TEST = """
from hypothesis import settings
from difftest import kernel_test
from kernel import {kernel}
from reference_add import add as reference

{settings}
@kernel_test(
    kernel={kernel},
    reference=reference,
    domain={{"m": range(1, 9), "n": (4,)}},
    inputs={{"a": "m n", "b": "m n"}},
    examples=[{{"m": 8, "n": 4}}],
)
def test_add(case):
    case.check()
"""

PACKAGES = {"classic": "neuronxcc.nki", "newer": "nki"}


@pytest.fixture
def beside():
    """For a test whose runs on the device each have a run of the embedded simulator."""


@pytest.fixture(params=["classic"])
def machine(request, pytester, in_process, tmp_path_factory, monkeypatch):
    """A folder with a project, an SDK and a device."""
    forget(monkeypatch, "neuronxcc", "nki", *PROBES)
    nodes = tmp_path_factory.mktemp("dev")
    (nodes / "neuron0").touch()
    monkeypatch.setattr(device, "DEVICE_NODES", nodes)
    monkeypatch.setenv("STANDIN_DEV", str(nodes))
    monkeypatch.setenv("DIFFTEST_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-1")
    monkeypatch.setenv("STANDIN_COUNT", str(pytester.path / "count"))
    if "beside" not in request.fixturenames:
        monkeypatch.setattr(embedded, "run_beside_sdk", lambda call: "not in this test")
    {"classic": write_classic, "newer": write_newer}[request.param](pytester.path)
    pytester.makepyfile(
        kernel=KERNEL.format(package=PACKAGES[request.param]), reference_add=REFERENCE
    )
    pytester.makeini("[pytest]\npythonpath = .\n")
    monkeypatch.syspath_prepend(str(pytester.path))
    return pytester


def add_test(machine, kernel="add", settings=""):
    machine.makepyfile(test_add=TEST.format(kernel=kernel, settings=settings))


def run(machine, *arguments):
    return machine.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def calls(machine):
    """Kernel and core of each run on the device."""
    lines = (machine.path / "count").read_text().splitlines()
    return [(line.split()[0], line.split()[2]) for line in lines]


both = pytest.mark.parametrize("machine", PACKAGES, indirect=True)


@both
def test_a_right_kernel_passes_and_the_known_kernel_ran_first(machine, beside):
    add_test(machine)
    result = run(machine, "--device")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["difftest: *neuron0 through nki.*", "add *12 *"])
    assert [name for name, _ in calls(machine)][:2] == ["add", "add"]
    # three drawn ones and one explicit, each on three draws of data; not the 20 of `quick`
    assert len(calls(machine)) - 2 == (3 + 1) * 3
    assert "exact run: add: device has none" not in result.stdout.str()


IN_PLACE = """
from difftest import kernel_test
from kernel import add_to, add_to_and_double, forgets
from reference_add import add

def of(kernel, reference):
    test = kernel_test(
        kernel=kernel,
        reference=reference,
        domain={"m": range(1, 9), "n": (4,)},
        inputs={"a": "m n", "b": "m n"},
        outputs={"a": "m n"},
    )
    return test(lambda case: case.check())

test_add_to = of(add_to, add)
test_add_to_and_double = of(add_to_and_double, lambda a, b: (2 * add(a, b), add(a, b)))
test_forgets = of(forgets, add)
"""


@both
def test_an_argument_that_is_updated_is_compared_on_the_device_and_on_the_simulator_of_an_sdk(
    machine,
):
    machine.makepyfile(test_in_place=IN_PLACE)
    for option in ("--simulate=sdk", "--device"):
        result = run(machine, option)
        result.assert_outcomes(passed=2, failed=1)
        result.stdout.fnmatch_lines(["*first wrong: a[[]*"])


def calls_of_failures(machine):
    """The number of runs on the device with three rows or more: the kernel is wrong there."""
    lines = (machine.path / "count").read_text().splitlines()
    rows = [
        line.split()[3] for line in lines if line.startswith("wrong_from_three_rows ")
    ]
    return len([one for one in rows if int(one.removeprefix("rows=")) >= 3])


def test_a_failure_that_a_simulator_shares_is_shrunk_there(machine):
    add_test(machine, "wrong_from_three_rows", "@settings(max_examples=50)")
    result = run(machine, "--device")
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "m=3, n=4, float32" in text, "shrunk to the fewest rows"
    assert "disagrees with its reference" in text
    # zeros, which the kernel gets right, may come before its random data
    drawn = 3
    explicit = 1
    assert calls_of_failures(machine) <= drawn + explicit, "no step of shrinking"


def test_a_device_only_failure_is_not_shrunk(machine, monkeypatch):
    monkeypatch.setenv("STANDIN_FAULT", "wrong")
    add_test(machine)
    result = run(machine, "--device", "test_add.py::test_add")
    text = result.stdout.str()
    assert "add disagrees with its reference on device" in text
    assert "device only: sdk agrees; not shrunk, for each step would compile" in text
    drawn = [one for one in calls(machine) if one[0] == "add"][2:]
    assert len(drawn) == 2, "the drawn and the explicit case, once each"


def test_the_device_runs_a_case_that_a_simulator_shrank_first(machine):
    add_test(machine, "wrong_from_three_rows", "@settings(max_examples=50)")
    for option in ("--simulate=sdk", "--device"):
        result = run(machine, option, "test_add.py::test_add")
        assert "m=3, n=4, float32" in result.stdout.str()
    drawn = [name for name, _ in calls(machine) if name == "wrong_from_three_rows"]
    assert len(drawn) == 2, "the one of Hypothesis's database, and the explicit one"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("zeros", "suspected: the kernel did not run"),
        ("compiler error", "hint: NCC_EVRF007"),
        ("crash", "killed by SIGSEGV"),
    ],
)
def test_each_kind_of_failure_has_its_text(machine, monkeypatch, fault, message):
    monkeypatch.setenv("STANDIN_FAULT", fault)
    add_test(machine)
    result = run(machine, "--device")
    result.assert_outcomes(failed=2)
    assert message in result.stdout.str()


def test_an_untrusted_device_runs_no_kernel_of_yours(machine, monkeypatch):
    monkeypatch.setenv("STANDIN_PROBE_FAULT", "zeros")
    add_test(machine)
    result = run(machine, "--device")
    result.assert_outcomes(failed=2)
    assert "the device is not to be believed" in result.stdout.str()
    assert {name for name, _ in calls(machine)} == {"add"}


WAITS = """
def test_that_waits_until_the_other_file_has_a_core():
    Path(__name__).touch()
    for _ in range(6000):
        if Path("test_one").exists() and Path("test_two").exists():
            break
        time.sleep(0.01)
"""


def test_workers_lease_a_core_each(machine, monkeypatch, request):
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    for name in ("test_one", "test_two"):
        text = TEST.format(kernel="add", settings="@settings(max_examples=1)")
        machine.makepyfile(
            **{name: f"import time\nfrom pathlib import Path\n{text}{WAITS}"}
        )
    words = [
        "-p",
        "tests.plugin.device_standin",
        "--device",
        "-n",
        "2",
        "--dist",
        "loadfile",
    ]
    result = run(machine, *words)
    result.assert_outcomes(passed=6)
    assert {core for _, core in calls(machine)} == {"0", "1"}


TWINS = """
from difftest import kernel_test
from kernel import add
from of_the_other_dialect import add as other
from reference_add import add as reference

SPEC = dict(
    reference=reference,
    domain={"m": range(1, 9), "n": (4,)},
    inputs={"a": "m n", "b": "m n"},
)

@kernel_test(kernels=(add, other), **SPEC)
def test_both(case):
    case.check()

@kernel_test(kernel=other, **SPEC)
def test_other(case):
    case.check()
"""


@both
def test_a_device_runs_the_kernels_of_its_dialect_and_counts_the_others(
    machine, request
):
    is_classic = request.node.callspec.params["machine"] == "classic"
    other = "nki" if is_classic else "neuronxcc.nki"
    machine.makepyfile(
        test_add=TWINS, of_the_other_dialect=KERNEL.format(package=other)
    )
    result = run(machine, "--device", "-v")
    result.assert_outcomes(passed=1, deselected=1)
    line = f"left out on device: 1 kernel of {other}, with 1 test that needs them"
    result.stdout.fnmatch_lines(
        [line, "  found:  *", "  remedy: *", "  kernel: of_the_other*.add"]
    )
    ran = len(calls(machine))
    result = run(machine, "--device", "test_add.py::test_other")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*device was requested, but cannot run any of the tested kernels*"]
    )
    assert len(calls(machine)) == ran, "nothing ran, the known kernel neither"

"""Commands on a test of an optimizer's step, whose weights and moments are updated in place.

The step is Adam's (Kingma and Ba, 2015, algorithm 1) without bias correction.
"""

import sys

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.mutants import command as mutants
from difftest.tools.mutants import generation
from difftest.tools.mutants.operators import BUGS

TODAY = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def adam_step(param, grad, m, v, rate):
    shape = grad.shape
    p, g, first, second, scaled, root = [
        nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf) for _ in range(6)
    ]
    for tile, array in ((p, param), (g, grad), (first, m), (second, v)):
        nisa.dma_copy(dst=tile, src=array)
    nisa.tensor_scalar(dst=first, data=first, op0=nl.multiply, operand0=0.875)
    nisa.tensor_scalar(dst=scaled, data=g, op0=nl.multiply, operand0=0.125)
    nisa.tensor_tensor(dst=first, data1=first, data2=scaled, op=nl.add)
    nisa.tensor_tensor(dst=scaled, data1=g, data2=g, op=nl.multiply)
    nisa.tensor_scalar(dst=scaled, data=scaled, op0=nl.multiply, operand0=0.0625)
    nisa.tensor_scalar(dst=second, data=second, op0=nl.multiply, operand0=0.9375)
    nisa.tensor_tensor(dst=second, data1=second, data2=scaled, op=nl.add)
    nisa.activation(dst=root, op=nl.sqrt, data=second)
    nisa.tensor_scalar(dst=root, data=root, op0=nl.add, operand0=0.01)
    nisa.reciprocal(dst=root, data=root)
    nisa.tensor_tensor(dst=root, data1=root, data2=first, op=nl.multiply)
    nisa.tensor_scalar(dst=root, data=root, op0=nl.multiply, operand0=rate)
    nisa.tensor_tensor(dst=p, data1=p, data2=root, op=nl.subtract)
    for tile, array in ((p, param), (first, m), (second, v)):
        nisa.dma_copy(dst=array, src=tile)
    return param, m, v
"""
CLASSIC = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


@nki.jit
def adam_step(
    param: nt.mutable_tensor, grad, m: nt.mutable_tensor, v: nt.mutable_tensor, rate
):
    g = nl.load(grad)
    first = nl.add(nl.multiply(nl.load(m), 0.875), nl.multiply(g, 0.125))
    square = nl.multiply(nl.multiply(g, g), 0.0625)
    second = nl.add(nl.multiply(nl.load(v), 0.9375), square)
    root = nl.add(nl.sqrt(second), 0.01)
    change = nl.multiply(nl.multiply(nl.reciprocal(root), first), rate)
    nl.store(param, nl.subtract(nl.load(param), change))
    nl.store(m, first)
    nl.store(v, second)
    return param, m, v
"""
KERNELS = {"today": TODAY, "classic": CLASSIC}
TEST = """
import numpy as np
from difftest import Input, Uniform, kernel_test, seeded, sizes
from adam_kernel import adam_step


def reference(param, grad, m, v, rate):
    grad = grad.astype(np.float64)
    m = 0.875 * m + 0.125 * grad
    v = 0.9375 * v + 0.0625 * grad**2
    return param - rate * m / (np.sqrt(v) + 0.01), m, v


@kernel_test(
    kernel=adam_step,
    reference=reference,
    domain={"n": sizes(1, 128), "k": sizes(1, 16), "rate": [0.5, 0.1]},
    inputs={
        "param": "n k",
        "grad": Input("n k", data=seeded(Uniform, low=-2.0, high=2.0)),
        "m": "n k",
        "v": Input("n k", data=seeded(Uniform, low=0.1, high=2.0)),
    },
    outputs={"param": "n k", "m": "n k", "v": "n k"},
    parameters=["rate"],
)
def test_adam(case):
    case.check()
"""
NAME = "test_adam.py::test_adam"
CASE = ("--case", '{"n": 3, "k": 2, "rate": 0.5}')


@pytest.fixture(params=KERNELS)
def kernel(request, tmp_path, monkeypatch):
    """A folder with the kernel of a dialect and its test; return the kernel's file."""
    file = tmp_path / "adam_kernel.py"
    file.write_text(KERNELS[request.param])
    (tmp_path / "test_adam.py").write_text(TEST)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield file
    for module in ("adam_kernel", "test_adam"):
        sys.modules.pop(module, None)


def run(*words, code=0):
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return result.output


def verdict(*options, code=0):
    return run("verdict", "adam_kernel.py:adam_step", NAME, *options, code=code)


def test_each_command_takes_the_test_of_an_optimizer(kernel, monkeypatch):
    monkeypatch.setattr(mutants, "PROCESSES", 0)
    few = ("one operand twice", "another operation")
    kinds = [one for one in BUGS if one[0] in few]
    monkeypatch.setattr(generation, "BUGS", kinds)  # so that it takes a moment
    checked = run("check", NAME, *CASE, "--strict")
    assert "findings: 0" in checked
    for name in ("param", "m", "v"):
        assert f"updated in place and returned: {name} [3, 2] float32" in checked
    agreed = verdict("--cases", "5", "--seed", "1")
    assert "adam_step: agrees" in agreed
    assert "it prints" not in agreed, "the kernel prints nothing"
    swept = run("sweep", NAME, "--over", "n=1,8", "-o", "points.parquet", "-n", "0")
    assert "2 points; agrees: 2" in swept
    assert "score: 100.0%" in run("mutate", NAME)
    assert "no fake output passes all of them" in run("verdict", "--audit", NAME)


def test_check_after_verdict_runs_the_kernel_itself(kernel):
    """A verdict forgets its stubs, and the text without comments that it quotes."""
    stored = "src=tile)\n    return"
    allowed = "src=tile)  # difftest: allow[argument-not-returned]\n    return"
    text = kernel.read_text().replace(stored, allowed)
    kernel.write_text(text.replace("return param, m, v", "return param, v"))
    verdict("--cases", "3")
    assert "findings: 0" in run("check", NAME, *CASE, "--strict")
    assert "2 points; agrees: 2" in run(
        "sweep", NAME, "--over", "n=1,8", "-o", "points.parquet", "-n", "0"
    )


WRONG = {
    "nl.store(m, first)": "nl.store(m, g)",
    "(p, param), (first, m), (second, v)):\n        nisa.dma_copy(dst=": (
        "(p, param), (g, m), (second, v)):\n        nisa.dma_copy(dst="
    ),
}


def test_a_wrong_moment_is_red_and_its_failure_replays(kernel, pytester, in_process):
    text = kernel.read_text()
    for right, wrong in WRONG.items():
        text = text.replace(right, wrong)
    assert text != kernel.read_text()
    pytester.makepyfile(adam_kernel=text, test_adam=TEST)
    result = in_process("--simulate", "--difftest-save", "saved")
    result.stdout.fnmatch_lines(["*first wrong: m*", "*written by:*adam_kernel.py:*"])
    saved = min(pytester.path.joinpath("saved").iterdir())
    assert "first wrong: m" in run("replay", str(saved), code=1)

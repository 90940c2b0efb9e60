"""Commands on a kernel test whose kernel updates an argument."""

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.mutants import command as mutants
from difftest.tools.mutants import generation
from difftest.tools.mutants.operators import BUGS

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def add_to(total, x):
    new = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    old = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=new, src=x)
    nisa.dma_copy(dst=old, src=total)
    nisa.tensor_tensor(dst=new, data1=new, data2=old, op=nl.add)
    nisa.dma_copy(dst=total, src=new)
    return total
"""
TEST = """
from difftest import kernel_test
from add_to_kernel import add_to


@kernel_test(
    kernel=add_to,
    reference=lambda total, x: total.astype("float64") + x,
    domain={"n": range(1, 9)},
    inputs={"x": "n 2", "total": "n 2"},
    outputs={"total": "n 2"},
)
def test_add_to(case):
    case.check()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "add_to_kernel.py").write_text(KERNEL)
    (tmp_path / "test_add_to.py").write_text(TEST)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "test_add_to.py::test_add_to"


def run(*words):
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_hand_its_data_over(place, monkeypatch):
    monkeypatch.setattr(mutants, "PROCESSES", 0)
    kinds = [one for one in BUGS if one[0] == "one operand twice"]
    monkeypatch.setattr(generation, "BUGS", kinds)  # so that it takes a moment
    swept = run("sweep", place, "--over", "n=1,8", "-o", "points.parquet", "-n", "0")
    assert "2 points; agrees: 2" in swept
    assert "score: 100.0%" in run("mutate", place)
    assert "no fake output passes all of them" in run("verdict", "--audit", place)
    assert "add_to: agrees" in run(
        "verdict", "add_to_kernel.py:add_to", place, "--cases", "5"
    )
    case = ("--case", '{"n": 3}')
    assert "findings: 0" in run("check", place, *case)
    assert "dma_copy" in run("profile", place, *case)

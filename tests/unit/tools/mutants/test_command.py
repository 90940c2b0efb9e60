import json
import re
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.mutants import command

TEST = """
from difftest import KernelSpec, kernel_test, sizes
from difftest.simulator.entry.install import embedded

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def kernel(x):
    (rows, columns) = x.shape
    tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


GIVEN = dict(
    kernel=kernel,
    reference=lambda x: x,
    domain={"M": sizes(1, 128)},
    inputs={"x": "M 3"},
    dtypes=("float32", "float16"),
    edges=False,
)
SPEC = KernelSpec(**GIVEN)
BROKEN = KernelSpec(**{**GIVEN, "reference": lambda x: x + 1})


@kernel_test(**GIVEN)
def test_kernel(case):
    case.check()
"""


@pytest.fixture
def mutate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\n"
    )
    (tmp_path / "test_kernel.py").write_text(TEST)

    def run(*words):
        return CliRunner().invoke(main, ["mutate", *words, "--cases", "3", "-n", "0"])

    return run


def test_the_score_and_the_reports(mutate, tmp_path):
    result = mutate(
        "test_kernel.py::test_kernel", "-v", "--json", "r.json", "--table", "t.md"
    )
    assert result.exit_code == 0, result.output
    assert "mutants: 4\nscore: 100.0% of 3: 3 found (" in result.output
    lines = result.output.splitlines()
    at = lines.index("test_kernel.py:15: instruction left out, in kernel: killed")
    assert lines[at + 1 : at + 3] == [
        "  -    nisa.dma_copy(dst=tile, src=x)",
        "  +    pass",
    ]
    assert lines[at + 3].startswith(
        "  found by rejection: UnwrittenError after 1 test: "
    )
    assert json.loads(lines[at + 5].removeprefix("  case: "))["values"] == {"M": 1}
    report = json.loads((tmp_path / "r.json").read_text())
    (file,) = report["files"].values()
    statuses = sorted(one["status"] for one in file["mutants"])
    assert statuses == ["Ignored", "Killed", "Killed", "Killed"]
    killed = next(one for one in file["mutants"] if one["status"] == "Killed")
    tests = report["testFiles"]["test_kernel.py::test_kernel"]["tests"]
    assert killed["killedBy"][0] in [one["id"] for one in tests]
    for one in file["mutants"]:
        start, end = (one["location"][name] for name in ("start", "end"))
        line = TEST.splitlines()[start["line"] - 1]
        assert start["line"] == end["line"]
        assert line[start["column"] - 1 : end["column"] - 1] != one["replacement"]
    table = (tmp_path / "t.md").read_text()
    assert "| test_kernel.py | 4 | 3 | 0 | 0 | 1 | 100.0% | " in table
    (alike,) = re.findall("## Suspected equivalents\n\n(- .*)\n", table)
    assert re.fullmatch(r"- test_kernel\.py:\d+: .*, in kernel: same bits: `.+`", alike)
    assert "## Not found" not in table
    again = mutate("test_kernel.py")
    assert "mutants: 4, 4 known from before\n" in again.output


def test_a_spec_by_its_name_and_one_that_fails(mutate):
    assert "mutants: 4\n" in mutate("test_kernel.py::SPEC").output
    result = mutate("test_kernel.py::BROKEN")
    assert result.exit_code == 1
    assert (
        "BROKEN fails without a planted bug: case 0: the algorithm differs: "
        in result.output
    )


def test_a_file_may_begin_with_a_byte_order_mark(mutate, tmp_path):
    (tmp_path / "test_marked.py").write_text(TEST, "utf-8-sig")
    assert "mutants: 4\n" in mutate("test_marked.py::SPEC").output


def test_a_budget_that_judges_nothing_has_no_score(mutate, tmp_path):
    result = mutate("test_kernel.py::test_kernel", "--budget", "0", "--table", "t.md")
    assert result.exit_code == 1
    assert "score: none, for no planted bug was judged\n" in result.output
    assert "left by the budget: 4;" in result.output
    assert "%" not in result.output
    assert "score: none" in (tmp_path / "t.md").read_text()


def test_kernels_without_mutants_have_no_score(mutate, tmp_path):
    """Like the mutants of a library, whose files stay the same."""
    (tmp_path / "test_library.py").write_text(
        TEST.replace("kernel=kernel", "kernel=abs")
    )
    result = mutate("test_library.py::SPEC")
    assert result.exit_code == 1
    assert "no bug can be planted: " in result.output
    assert "100" not in result.output


def test_a_name_that_is_not_there(mutate):
    result = mutate("test_kernel.py::test_kernels")
    assert result.exit_code == 2
    assert "has no kernel test 'test_kernels'" in result.output
    assert "test_kernel" in result.output


def test_after_ctrl_c_the_last_line_says_how_to_go_on(mutate, monkeypatch):
    monkeypatch.setattr(command.Campaign, "run", Mock(side_effect=KeyboardInterrupt))
    result = mutate("test_kernel.py::test_kernel")
    assert result.exit_code == 130
    assert (
        "stopped: the results so far are in .difftest; the same command continues"
        in result.stderr
    )

"""A constant that a test reads of the candidate's own file decides nothing."""

from click.testing import CliRunner

from difftest.tools.verdict.command import verdict
from tests.every import every
from tests.unit.tools.verdict.kernels import source

TEST = """
import numpy as np
from cand import FACTOR, scale
from difftest import kernel_test, sizes


@kernel_test(
    kernel=scale,
    reference=lambda a: a.astype(np.float64) * FACTOR,
    domain={"p": sizes(1, 4), "n": sizes(1, 4)},
    inputs={"a": "p n"},
)
def test_scale(case):
    case.check()
"""


def file_of(factor):
    text = source("").partition("@nki.jit")[0]
    copied = "@nki.jit\ndef scale(a):\n    tile = load(a)\n"
    line = f"    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0={factor})\n"
    return f"{text}\nFACTOR = {factor}\n\n{copied}{line}    return store(tile)\n"


@every(
    "factor, original, code, said",
    [
        (1.0, (), 7, "FACTOR = 1.0 of a candidate's own file; keep them in the test"),
        (1.0, ("--original", "first.py"), 7, "first.py has others"),
        (3.0, ("--original", "first.py"), 0, "agrees"),
    ],
)
def test_a_constant_of_the_candidates_own_is_an_outcome(
    tmp_path, monkeypatch, factor, original, code, said
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cand.py").write_text(file_of(factor))
    (tmp_path / "first.py").write_text(file_of(3.0))
    test = f"test_scale_{factor:.0f}_{len(original)}.py"
    (tmp_path / test).write_text(TEST)
    asked = ["cand.py:scale", f"{test}::test_scale", "--cases", "3", *original]
    done = CliRunner().invoke(verdict, asked)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_a_default_that_a_test_reads_is_a_constant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = file_of(2.0).replace("def scale(a):", "def scale(a, factor=2.0):")
    (tmp_path / "cand_with_default.py").write_text(text.replace("FACTOR = 2.0", ""))
    read = "import inspect\nfrom cand_with_default import scale\n"
    read += "FACTOR = inspect.signature(scale).parameters['factor'].default\n"
    own = TEST.replace("from cand import FACTOR, scale\n", read)
    (tmp_path / "test_of_default.py").write_text(own)
    asked = [
        "cand_with_default.py:scale",
        "test_of_default.py::test_scale",
        "--cases",
        "3",
    ]
    done = CliRunner().invoke(verdict, asked)
    assert done.exit_code == 7, done.output
    assert "its test reads scale(factor) = 2.0 of a candidate's own file" in done.output


def test_a_test_that_imports_a_class_of_the_candidates_file_is_told_to_move_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = file_of(2.0).replace(
        "@nki.jit", "class Config:\n    factor = 2.0\n\n\n@nki.jit"
    )
    (tmp_path / "cand_with_class.py").write_text(text)
    own = TEST.replace(
        "from cand import FACTOR", "from cand_with_class import Config, FACTOR"
    )
    (tmp_path / "test_of_class.py").write_text(own)
    asked = ["cand_with_class.py:scale", "test_of_class.py::test_scale"]
    done = CliRunner().invoke(verdict, asked)
    assert done.exit_code == 1, done.output
    assert "The test reads Config of cand_with_class.py, which" in done.output
    assert "Move other objects to another file." in done.output

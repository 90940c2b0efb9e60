import pytest

from conformance.linting import RULES, Reader, main, run, section
from conformance.outcomes import PASSED
from difftest.simulator.launch_listeners import listening

TEST = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit(mode="simulation")
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a[0:1].broadcast_to(a.shape)))
    return out


def test_kernel():
    assert kernel(np.ones((128, 4), np.float32)).shape == (128, 4)
"""
LINE = 10


@pytest.fixture
def checkout(tmp_path):
    """A documentation of one test, whose launch breaks NKI528, and of one script."""
    for folder in ("general/nki/test", "nki/examples"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "general/nki/test/test_it.py").write_text(TEST)
    (tmp_path / "nki/examples/script.py").write_text(TEST + "\n\ntest_kernel()\n")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "file"),
    [("classic", "general/nki/test/test_it.py"), ("scripts", "nki/examples/script.py")],
)
def test_a_rule_that_a_launch_breaks_is_reported_with_its_line(checkout, kind, file):
    reader = Reader(None)
    with listening(reader):
        outcomes = run(kind, checkout, [], 60)
    assert [one.result for one in outcomes] == [PASSED]
    assert reader.launches == 1
    assert dict(reader.broken) == {("NKI528", str(checkout / file), LINE): 1}
    text = section("title", "command", checkout, "1 file read", reader)
    assert f"| [NKI528]({RULES}/NKI528.md) | {file}:{LINE} | 1 | " in text


def test_a_rule_that_a_file_breaks_is_reported_and_sets_the_exit_code(checkout, capsys):
    file = checkout / "general/nki/test/test_it.py"
    file.write_text(
        TEST.replace("    return out", "    nl.no_such(out)\n    return out")
    )
    assert main([str(checkout), "classic"]) == 1
    said = capsys.readouterr().out
    assert f"[NKU305]({RULES}/NKU305.md) | general/nki/test/test_it.py:11 | 1 |" in said


def test_a_place_without_code_is_an_error_of_its_own(tmp_path, capsys):
    assert main([str(tmp_path), "scripts"]) == 2
    assert "no script under" in capsys.readouterr().err

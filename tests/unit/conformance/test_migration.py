import pytest

from conformance.migration import Carried, carried, main, section
from conformance.outcomes import FAILED, PASSED, Outcome

TEST = """
import unittest
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit(mode="simulation")
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    {}
    nl.store(out, tile)
    return out


class TestKernel(unittest.TestCase):
    def test_it(self):
        a = np.ones((128, 4), np.float32)
        self.assertTrue(np.allclose(kernel(a), {}))
"""


@pytest.fixture
def checkout(tmp_path):
    """A documentation of four tests and a script."""
    tests = tmp_path / "general" / "nki" / "test"
    scripts = tmp_path / "general" / "nki" / "examples"
    tests.mkdir(parents=True)
    scripts.mkdir()
    for name, line, expected in (
        ("test_whole.py", "tile = nl.exp(tile)", "np.exp(a)"),
        ("test_left.py", "tile = tile ** 2", "a"),
        ("test_broken.py", "tile = tile * 2", "a"),
    ):
        (tests / name).write_text(TEST.format(line, expected))
    (scripts / "script.py").write_text(
        TEST.format("pass", "a")
        + "\n\nif __name__ == '__main__':\n    kernel(np.ones((4, 4)))\n"
    )
    return tmp_path


def test_each_file_is_counted_and_run(checkout):
    found = {one.name.rpartition("/")[2]: one for one in carried(checkout, 60)}
    assert {name: (one.whole, one.comments) for name, one in found.items()} == {
        "test_whole.py": (1, 0),
        "test_left.py": (0, 1),
        "test_broken.py": (1, 0),
        "script.py": (1, 0),
    }
    verdicts = {name: one.verdict() for name, one in found.items()}
    assert verdicts["test_whole.py"] == "agree"
    assert verdicts["test_left.py"] == "refused"
    assert verdicts["test_broken.py"] == "fails before, too"
    text = section(checkout, list(found.values()))
    assert "Of 4 kernels 3 are carried over whole, 1 have comments." in text


def test_a_result_that_differs_is_distinguished_from_an_error():
    wrong = Outcome("f", "f::test", FAILED, "AssertionError: False is not true")
    error = Outcome(
        "f", "f::test", FAILED, "ShapeError: no\n  rule: tiles are the same\n"
    )
    passed = Outcome("f", "f::other", PASSED)
    assert Carried("f", {}, 0, [wrong, passed]).verdict() == "wrong"
    assert Carried("f", {}, 0, [error, passed]).verdict() == "refused"
    assert Carried("f", {}, 0, [wrong], {"f::test"}).verdict() == "fails before, too"
    assert Carried("f", {}, 0).verdict() == "nothing"


def test_without_the_folders_it_says_so(tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path)])

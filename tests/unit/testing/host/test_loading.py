"""A module that does not load, and a name that is not there."""

import sys

from click.testing import CliRunner

from difftest.cli.main import main

HELPER = "def f(n):\n    return 1 / n\n"
MODULES = {
    "raises": (
        "from helper import f\nf(0)\n",
        "ZeroDivisionError: division by zero",
        "helper.py",
    ),
    "leaves": ("import sys\nsys.exit(0)\n", "SystemExit: 0", "sys.exit(0)"),
    "misses": ("import no_such_module\n", "No module named 'no_such_module'", "line 1"),
    "spells": (
        "import nki.language as nl\nnl.flaot32\n",
        "did you mean float32",
        "nl.flaot32",
    ),
}
NAMES = """
import numpy as np
from math import sin
import nki


@nki.jit
def add_rows(x): ...


def add_columns(x): ...


class Adder: ...
"""


def run(*arguments):
    return CliRunner().invoke(main, ["check", *arguments, "--shape", "4,4"])


def test_a_module_that_raises_shows_the_users_traceback_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text(HELPER)
    for name, (source, error, line) in MODULES.items():
        (tmp_path / f"load_{name}.py").write_text(source)
        for place in (f"load_{name}.py", f"load_{name}"):
            sys.modules.pop(f"load_{name}", None)
            result = run(f"{place}:kernel")
            assert result.exit_code == 1, place
            first, head, frame = result.stderr.splitlines()[:3]
            assert first == f"Error: cannot import {place}"
            assert head == "Traceback (most recent call last):"
            assert frame.startswith(f'  File "{tmp_path}/load_{name}.py", line ')
            assert error in result.stderr
            assert line in result.stderr
            assert "difftest/" not in result.stderr
            assert "importlib" not in result.stderr


def test_a_name_that_is_not_there_gets_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "load_names.py").write_text(NAMES)
    it_has = "; it has add_columns, add_rows"
    for name, said in (
        ("ad_rows", f"has no function ad_rows{it_has}; did you mean add_rows?"),
        ("other", f"has no function other{it_has}\n"),
        ("np", "has no function np; its np is of type module"),
        ("sin", "its sin is of type builtin_function_or_method"),
        ("Adder", "its Adder is of type type"),
    ):
        result = run(f"load_names.py:{name}")
        assert result.exit_code == 2, name
        assert f"Error: load_names.py {said}" in result.stderr or said in result.stderr
    assert (
        "numpy has no function exp; its exp is of type ufunc\n"
        in run("numpy:exp").stderr
    )
    assert "PATH::TEST, goes with --case" in run("load_names.py::test_it").stderr


def test_a_kernel_test_that_is_not_there_gets_the_others():
    test = "tests/kernels/test_transpose.py::"
    result = CliRunner().invoke(main, ["check", f"{test}test_transpos", "--case", "{}"])
    assert result.exit_code == 2
    assert "has no kernel test 'test_transpos'; it has " in result.stderr
    assert "did you mean test_matrix_transpose?" in result.stderr

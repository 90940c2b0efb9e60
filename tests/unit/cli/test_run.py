import subprocess
import sys
import warnings

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from tests.every import every

COMMAND = [sys.executable, "-c", "from difftest.cli.main import main; main()", "run"]


@pytest.fixture
def script(tmp_path):
    """Write a script; return its path."""

    def write(source: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(source)
        return str(path)

    return write


def test_options_after_the_script_belong_to_the_script(script):
    path = script("import sys; print(sys.argv[1:])")
    result = CliRunner().invoke(
        main, ["run", path, "--help", "-n", "5", "--", "--version"]
    )
    assert result.stdout == "['--help', '-n', '5', '--', '--version']\n"


def test_the_exit_code_is_the_scripts(script):
    ended = subprocess.run(
        [*COMMAND, script("raise SystemExit(7)")], capture_output=True
    )
    assert (ended.returncode, ended.stdout) == (7, b"")
    for source, code in (("", 0), ("import sys; sys.exit('no')", 1)):
        assert CliRunner().invoke(main, ["run", script(source)]).exit_code == code


NEW_LOOP = """
import nki, nki.language as nl
def kernel():
    nl.fori_loop(0, 1, lambda i: None)
nki.simulate(kernel)()
"""


@every("level, code", [(("--level", "0.5"), 1), (("--level", "0.6"), 0)])
def test_kernels_of_a_script_are_of_the_level_named(script, level, code):
    result = CliRunner().invoke(main, ["run", *level, script(NEW_LOOP)])
    assert result.exit_code == code, result.output
    assert ("nl.fori_loop exists since NKI 0.6" in result.stderr) == bool(code)


STRICT = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 8), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.max8(nl.load(x)))
    return out

kernel(np.zeros((128, 64), np.float32))
"""


@every(
    "strictness, code, said",
    [
        ("documented", 1, "KernelError"),
        ("seen", 0, "RuleWarning"),
        ("relaxed", 0, "RuleWarning"),
    ],
)
def test_the_strictness_of_a_script_is_a_setting(script, strictness, code, said):
    path = script(STRICT)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ended = CliRunner().invoke(main, ["run", "--strictness", strictness, path])
    assert ended.exit_code == code, ended.stderr
    assert said in ended.stderr + "".join(one.category.__name__ for one in warned)


HAZARD = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def total(a):
    out = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((128, 1), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(2):
        tile[...] {update}
    nl.store(out, tile)
    return out

for _ in range(2):
    print(total(np.ones((128, 2), np.float32)).sum())
"""
CARRIED = "= nl.subtract(nl.load(a[:, i]), tile)"
REDUCTION = "+= nl.load(a[:, i])"


@every(
    "update, options, found, code",
    [
        (CARRIED, (), "error affine-carried", 1),
        (REDUCTION, (), "warning affine-reduction", 0),
        (REDUCTION, ("--strict",), "warning affine-reduction", 1),
    ],
)
def test_hazards_are_reported_once_after_the_script(
    script, update, options, found, code
):
    path = script(HAZARD.format(update=update))
    ended = CliRunner().invoke(main, ["run", *options, path])
    assert ended.exit_code == code
    assert len(ended.stdout.splitlines()) == 2
    assert ended.stderr.count(found) == 1

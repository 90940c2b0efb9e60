"""What a new user may get wrong, command by command: one clear error, and the right exit code."""

import shlex

from click.testing import CliRunner

from difftest.cli.main import main

FILES = {
    "wrong_now.py": """
import nki, nki.isa as nisa, nki.language as nl


@nki.jit
def copy(x, n=1):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


def nothing(x):
    return x


def number(x):
    return 3
""",
    "wrong_old.py": """
import neuronxcc.nki as nki, neuronxcc.nki.language as nl


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
""",
    "conv2d.py": "def fused_conv2d_maxpool(X, W, bias, pool_size=1): ...\n",
    "broken.py": "def f(:\n",
}
COPY = "wrong_now.py:copy --shape 4,4"
PROOF = "migrate wrong_old.py --kernel copy --shape 4,n"
WRONG = {
    f"check {COPY} --set n=1 --set n=2": (2, "n is set twice"),
    f"check {COPY} --set m=1": (1, "unexpected keyword argument 'm'"),
    f"check {COPY} --grid 100000000": (2, "a grid has at most 4096 programs"),
    f"check {COPY} --ranks 1000000": (2, "not in the range 1<=x<=4096"),
    f"check {COPY} --dtype int32 --bound x=²": (2, "a bound is NAME=N"),
    f"check {COPY} --dtype float64": (2, "NKI has no such dtype"),
    f"check wrong_now.py:copy --shape {'1,' * 64}1": (2, "1 to 32 positive sizes"),
    "check wrong_old.py:copy --shape 4,4 --ranks 2": (2, "this one is a classic one"),
    "check wrong_now.py:nothing --shape 4,4": (1, "nothing to check"),
    "check wrong_now.py:number --shape 4,4": (1, "a kernel returns tensors"),
    "check .wrong_now:copy --shape 4,4": (2, "a kernel is named MODULE:KERNEL"),
    f"profile {COPY} --json a.json --perfetto a.json": (2, "a file of their own"),
    "grade broken.py": (1, "cannot import broken.py: invalid syntax"),
    "grade nowhere.py": (2, "does not exist"),
    "grade conv2d.py --seed -1": (2, "not in the range 0<=x<=4294967295"),
    "measure conv2d.py --json nowhere/a.json": (2, "there is no folder nowhere"),
    "timing validate -k nobody": (2, "no measured kernel has 'nobody'"),
    f"{PROOF} --sizes n=0:4": (2, "sizes are NAME=1:300"),
    f"{PROOF} --sizes n=-3": (2, "sizes are NAME=1:300"),
    f"{PROOF} --sizes n=4 --dtype floaty": (2, "NKI has no such dtype"),
    "migrate wrong_old.py --kernel kopy --shape 4,4": (1, "; it has copy; did you mean copy?"),
}


def test_each_ends_in_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for line, (code, said) in WRONG.items():
        result = CliRunner().invoke(main, shlex.split(line))
        assert isinstance(result.exception, SystemExit), (line, result.exception)
        assert result.exit_code == code, (line, result.output)
        assert said in " ".join(result.stderr.split()), (line, result.stderr)
        assert "Traceback" not in result.output, line
        assert "/difftest/" not in result.output, line
    assert sorted(path.name for path in tmp_path.glob("*.*")) == sorted(FILES)

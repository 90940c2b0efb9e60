"""A project whose pytest makes every warning an error."""

import subprocess
import sys

KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
TEST = """\
from difftest import kernel_test, sizes
from copying import copied


@kernel_test(
    kernel=copied, reference=lambda x: x, domain={"n": sizes(1, 9)}, inputs={"x": "128 n"}
)
def test_copied(case):
    case.check()
"""


def test_a_test_is_named_to_a_command(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\npythonpath = .\n"
    )
    (tmp_path / "copying.py").write_text(KERNEL)
    (tmp_path / "test_copying.py").write_text(TEST)
    case = '{"values":{"n":4},"dtype":"float32","data":{"x":"iota"}}'
    command = "from difftest.cli.main import main; main()"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            command,
            "check",
            "test_copying.py::test_copied",
            "--case",
            case,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "copied on trn2: instructions: 2, findings: 0" in done.stdout

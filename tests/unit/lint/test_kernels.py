"""What the linter says of a kernel that a test runs."""

from __future__ import annotations

from difftest.analysis.finding import Severity
from difftest.lint.kernels import findings_of

FILE = """import nki
import nki.isa as nisa
import nki.language as nl


def double(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    return [tile for _ in range(1)]


def other(tile):
    return [tile for _ in range(1)]


@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    double(tile)
    return x
"""


def compiled(file):
    names = {}
    text = FILE.replace("import nki", "# import nki").replace("@nki.jit\n", "")
    exec(compile(text, file, "exec"), names)
    return names["kernel"]


def test_a_kernel_and_what_it_calls_are_read_at_a_level(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(FILE)
    [found] = findings_of(compiled(str(file)), "0.6")
    assert (found.id, found.severity) == ("NKL101", Severity.WARNING)
    assert found.location == (str(file), 8)
    assert findings_of(compiled(str(file)), "0.7") == ()


def test_a_kernel_without_a_file_breaks_no_rule():
    assert findings_of(compiled("<stdin>")) == ()
    assert findings_of(print) == ()

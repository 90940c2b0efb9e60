import json
import sys

from click.testing import CliRunner

from difftest.cli.main import main
from difftest.simulator import trace_from_json
from tests.every import every

STREAM = "kernels.classic.vector_add:vector_add_stream"
CALL = (STREAM, "--shape", "512", "--shape", "512", "--set", "FREE_DIM=2")


def run(*arguments):
    return CliRunner().invoke(main, ["trace", *arguments])


def test_a_file(tmp_path):
    file = tmp_path / "trace.json"
    result = run(*CALL, "-o", str(file))
    assert result.exit_code == 0, result.output
    trace = trace_from_json(file.read_text())
    assert result.stdout == f"{file}: {len(trace)} events of vector_add_stream on trn2\n"
    assert trace.count("dma_copy") == 6
    assert {event.location.file.rpartition("/")[2] for event in trace} == {"vector_add.py"}


def test_standard_output_holds_the_trace_alone():
    result = run(*CALL, "-o", "-", "--machine", "trn1")
    assert result.exit_code == 0, result.output
    trace = trace_from_json(result.stdout)
    assert (trace.kernel, trace.machine) == ("vector_add_stream", "trn1")


def test_a_case_of_a_kernel_test(tmp_path):
    case = {
        "values": {"M": 128, "K": 128, "N": 512},
        "dtype": "float16",
        "data": {name: {"random": {"seed": 0, "spread": 1}} for name in ("lhsT", "rhs")},
    }
    test = "tests/kernels/test_matmul.py::test_nki_matmul_tiled"
    result = run(test, "--case", json.dumps(case), "-o", "-")
    assert result.exit_code == 0, result.output
    assert trace_from_json(result.stdout).count("nc_matmul") == 1


def test_a_kernel_that_fails_leaves_no_file(tmp_path):
    file = tmp_path / "trace.json"
    assert run(STREAM, "--shape", "7", "--shape", "7", "-o", str(file)).exit_code != 0
    assert not file.exists()


NEW_LOOP = """
import nki, nki.isa as nisa, nki.language as nl
@nki.jit
def kernel(a):
    tile = nl.load(a)
    nl.fori_loop(0, 1, lambda i: nisa.tensor_copy(tile, tile))
"""


@every("level, code", [("0.5", 1), ("0.6", 0)])
def test_a_kernel_is_of_the_level_named(level, code, tmp_path, monkeypatch):
    (tmp_path / "leveled.py").write_text(NEW_LOOP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leveled", raising=False)
    result = run("leveled:kernel", "--shape", "4,4", "-o", "-", "--level", level)
    assert result.exit_code == code, result.output
    assert ("nl.fori_loop exists since NKI 0.6" in result.output) == bool(code)

from click.testing import CliRunner

from difftest.cli.main import main
from difftest.simulator import trace_from_json

STREAM = "kernels.classic.vector_add:vector_add_stream"
CALL = (STREAM, "--shape", "512", "--shape", "512", "--set", "FREE_DIM=2")


def run(*arguments):
    return CliRunner().invoke(main, ["trace", *arguments])


def test_the_command_writes_a_trace_that_reads_back(tmp_path):
    file = tmp_path / "trace.json"
    result = run(*CALL, "-o", str(file))
    assert result.exit_code == 0, result.output
    trace = trace_from_json(file.read_text())
    assert (
        result.stdout == f"{file}: {len(trace)} events of vector_add_stream on trn2\n"
    )
    assert trace.count("dma_copy") == 6
    assert {event.location.file.rpartition("/")[2] for event in trace} == {
        "vector_add.py"
    }


def test_standard_output_holds_the_trace_alone():
    result = run(*CALL, "-o", "-", "--machine", "trn1")
    assert result.exit_code == 0, result.output
    trace = trace_from_json(result.stdout)
    assert (trace.kernel, trace.machine) == ("vector_add_stream", "trn1")


def test_a_kernel_that_fails_leaves_no_file(tmp_path):
    file = tmp_path / "trace.json"
    assert run(STREAM, "--shape", "7", "--shape", "7", "-o", str(file)).exit_code != 0
    assert not file.exists()

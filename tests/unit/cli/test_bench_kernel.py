import re

from click.testing import CliRunner

from difftest.cli.main import main
from tests.every import every


def run(*arguments):
    return CliRunner().invoke(main, ["bench", "kernel", *arguments])


@every(
    "arguments, first",
    [
        (("naive", "-n", "128"), "vector_add_naive on 128 float32"),
        (("tiled", "-n", "1280"), "vector_add_tiled on 1280 float32"),
        (("stream", "-n", "1024"), "vector_add_stream on 1024 float32"),
        (("transpose", "-n", "128"), "matrix_transpose on 128 x 128 float32"),
        (
            ("transpose", "-n", "128", "-m", "256"),
            "matrix_transpose on 256 x 128 float32",
        ),
    ],
)
def test_a_kernel_is_checked_and_then_timed(arguments, first):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == first
    assert re.fullmatch(r"correct: [\d,]+ elements compared", lines[1])
    assert re.fullmatch(
        r"simulated in [\d,.]+ ms on this computer, the mean of [\d,]+ \(\d+ instructions, .*held"
        r" at once; not a device's latency\)",
        lines[2],
    )


def test_a_size_outside_the_contract_is_refused_with_the_kernels_reason():
    result = run("stream", "-n", "257")
    assert result.exit_code == 1
    assert "257 elements are not a multiple of 128 * FREE_DIM=2" in result.output

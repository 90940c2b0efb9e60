import json
import re

from click.testing import CliRunner

from difftest.cli.main import main

STREAM = "kernels.classic.vector_add:vector_add_stream"
SAID = re.compile(
    r"(\S+): simulated in [\d.,]+ ms on this computer, the mean of [\d,]+ "
    r"\((\d+) instructions, [\d.,]+ \S+ held at once; not a device's latency\)\n"
)


def run(*arguments):
    return CliRunner().invoke(main, ["bench", "own", *arguments])


def test_a_kernel_by_name():
    result = run(STREAM, "--shape", "512", "--shape", "512", "--set", "FREE_DIM=2")
    assert result.exit_code == 0, result.output
    name, instructions = SAID.fullmatch(result.stdout).groups()
    assert (name, int(instructions)) == ("vector_add_stream", 8)


def test_a_case_of_a_kernel_test():
    case = {
        "values": {"M": 128, "K": 128, "N": 512},
        "dtype": "float16",
        "data": {
            name: {"random": {"seed": 0, "spread": 1}} for name in ("lhsT", "rhs")
        },
    }
    test = "tests/kernels/test_matmul.py::test_nki_matmul_tiled"
    result = run(test, "--case", json.dumps(case))
    assert result.exit_code == 0, result.output
    assert SAID.fullmatch(result.stdout).group(1) == "test_nki_matmul_tiled"

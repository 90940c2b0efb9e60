from click.testing import CliRunner

from difftest.cli.main import main


def run(*arguments):
    return CliRunner().invoke(main, ["timing", "validate", *arguments], env={"COLUMNS": "200"})


def test_predicted_against_measured():
    result = run("--quick", "-k", "vector_add_stream")
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if "vector_add_stream" in line]
    assert len(rows) == 4
    assert "us, predicted against measured" in result.stdout
    assert "median error of 3" in result.stdout
    assert "26.60" in result.stdout


def test_a_kernel_that_was_not_measured():
    result = run("-k", "softmax")
    assert result.exit_code == 1
    assert "no measured kernel has 'softmax' in its name" in result.output

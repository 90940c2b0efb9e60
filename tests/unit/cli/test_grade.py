import sys

import pytest
from click.testing import CliRunner

from difftest.cli import grade as command
from difftest.cli.main import main
from difftest.tools.course.assignment import CorrectnessTest
from difftest.tools.course.grading import PredictedP99
from tests.unit import student

SMALL = CorrectnessTest(
    name="small images", image=(6, 6), channels=((128, 128),), bias=True, pool_size=1
)
POOLED = CorrectnessTest(
    name="with max pool", image=(6, 6), channels=((128, 128),), bias=True, pool_size=2
)


@pytest.fixture
def grade(tmp_path, monkeypatch):
    def tests(*, max_pool):
        return (SMALL, POOLED) if max_pool else (SMALL,)

    monkeypatch.setattr(command, "correctness_tests", tests)
    monkeypatch.setattr(
        command,
        "predict_p99",
        lambda kernel, test: PredictedP99(
            test.full_us + 1, test.full_us - 99, test.full_us + 99
        ),
    )

    def run(source, *options):
        file = tmp_path / "conv2d.py"
        file.write_text(source)
        monkeypatch.delitem(sys.modules, "conv2d", raising=False)
        return CliRunner().invoke(main, ["grade", str(file), *options])

    return run


def test_a_right_kernel_gets_its_points_and_predictions(grade):
    result = grade(student.SOURCE, "--test-maxpool")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert "passed  small images: 128 -> 128 channels" in lines
    assert "passed  with max pool: 128 -> 128 channels" in lines
    assert "Correctness: 5 of 5 points" in lines
    assert "Performance: not measured (needs a device), of 50 points" in lines
    assert "Extra credit: not measured (needs a device), of 5 points" in lines
    assert (
        "        224x224, float32, no pool: 17.5 points under 4596 us p99, 4964 relaxed; "
        "predicted 4,597 us (4,497 to 4,695)"
    ) in lines


def test_predicted_points_are_marked_and_not_added(grade):
    lines = grade(student.SOURCE, "--test-maxpool").output.splitlines()
    predicted = [
        line.strip() for line in lines if line.strip().startswith("predicted:")
    ]
    # 95 % of 50 points: each prediction lies just over its full-credit limit; extra credit has
    # one limit only.
    assert predicted == [
        "predicted: 47.5 points, if the model is right",
        "predicted: 0 points, if the model is right",
    ]


def test_no_predict_leaves_the_predictions_out(grade):
    result = grade(student.SOURCE, "--no-predict")
    assert result.exit_code == 0
    assert "predicted" not in result.output


def test_a_kernel_that_cannot_be_predicted_says_why(grade, monkeypatch):
    def refuse(kernel, test):
        raise ValueError("the cost of nc_unknown is not known")

    monkeypatch.setattr(command, "predict_p99", refuse)
    result = grade(student.SOURCE)
    assert result.exit_code == 0
    text = "no prediction for 224x224, float32, no pool: the cost of nc_unknown is not known"
    assert text in result.output
    assert "predicted:" not in result.output


def test_without_max_pool_fewer_points_count(grade):
    result = grade(student.SOURCE)
    assert "Correctness: 2.5 of 2.5 points" in result.output
    assert "of 35 points" in result.output


def test_a_wrong_kernel_exits_with_1(grade):
    result = grade(student.SWAPPED_TAPS)
    assert result.exit_code == 1
    assert "FAILED  small images: 128 -> 128 channels" in result.output
    assert "elements are wrong" in result.output
    assert "Correctness: 0 of 2.5 points" in result.output
    assert "not measured (correctness comes first)" in result.output


def test_a_tensor_that_is_used_out_of_its_scope_is_no_right_solution(grade):
    """The simulator runs it, and the compiler of the assignment refuses it."""
    result = grade(student.OUT_OF_SCOPE)
    assert result.exit_code == 1
    assert "passed  small images: 128 -> 128 channels" in result.output
    assert "FAILED  on a device:\n        error tensor-scope: " in result.output
    assert "conv2d.py:" in result.output.partition("tensor-scope")[2]
    assert "not measured (correctness comes first)" in result.output
    assert "predicted" not in result.output


def test_an_error_is_reported_once(grade):
    lines = grade(student.RAISING, "--test-maxpool").output.splitlines()
    assert lines.count("        the kernel raised KeyError: 'bias'") == 1
    assert lines.count("        as above") == 1


def test_a_file_without_the_kernel(grade):
    result = grade(student.OTHER_NAME)
    assert result.exit_code == 2
    assert "has no function fused_conv2d_maxpool" in result.output

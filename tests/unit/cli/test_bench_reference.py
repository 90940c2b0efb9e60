import timeit

import numpy as np
from click.testing import CliRunner

from difftest.cli.bench import Reading, comparison_table, reference_forms
from difftest.cli.main import main


def test_original_and_optimised_forms_are_side_by_side(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # which folder it runs in does not matter
    monkeypatch.setattr(timeit.Timer, "autorange", lambda self: (1, self.timeit(1)))
    result = CliRunner().invoke(main, ["bench", "reference", "--size", "tiny"])
    assert result.exit_code == 0, result.output
    for heading in ("Name", "Time/Run", "Memory allocated/Run", "vs Fastest"):
        assert heading in result.stdout
    names = [
        line.strip("│ ").split()[0]
        for line in result.stdout.splitlines()
        if "4x4" in line
    ]
    # of the convolution, of the pooling
    assert names == ["orig_tiny_4x4", "opt_tiny_4x4"] * 2
    assert result.stdout.count(" 100.00%") == 2


def test_the_forms_compared_give_the_same_result():
    for forms in reference_forms(("tiny", "small", "medium")).values():
        results = [form() for form in forms.values()]
        assert len(results) == 6
        for original, optimised in zip(results[::2], results[1::2], strict=True):
            np.testing.assert_allclose(optimised, original, rtol=0, atol=1e-13)


def test_times_are_relative_to_the_fastest():
    measured = {"slow": Reading(3e-3, 2_000, 1), "fast": Reading(2e-3, 0, 1)}
    columns = [
        list(column.cells) for column in comparison_table("a title", measured).columns
    ]
    assert columns == [
        ["slow", "fast"],
        ["3,000.0 µs", "2,000.0 µs"],
        ["2.0 kB", "0 bytes"],
        ["150.00%", "100.00%"],
    ]

"""What ``difftest init`` writes runs green with the README's command, and says what broke it."""

import pytest
from click.testing import CliRunner

from difftest.cli.init import NAMES
from difftest.cli.main import main


def test_the_first_files_run_green(pytester, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(pytester.path)
    result = CliRunner().invoke(main, ["init"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [*NAMES, "now: pytest --simulate"]
    ran = pytester.runpytest_subprocess("--simulate", "--hypothesis-seed=1")
    ran.assert_outcomes(passed=1 + 1 + 1 + 2)  # drawn, edges, the rejection, the example twice


def test_a_broken_first_kernel_is_red(pytester, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    assert CliRunner().invoke(main, ["init", str(pytester.path)]).exit_code == 0
    kernel = pytester.path / "scale.py"
    text = kernel.read_text()
    assert "x[first : first + count, :]" in text
    kernel.write_text(text.replace("x[first : first + count, :]", "x[0:count, :]"))
    ran = pytester.runpytest_subprocess("--simulate", "--hypothesis-seed=1")
    assert ran.parseoutcomes()["failed"] >= 1


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_there_stays(tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path / name} is there already, and stays as it is" in result.output
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"

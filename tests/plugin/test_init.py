"""The files of ``difftest init`` run green with the README's command, and name a breakage."""

import pytest
from click.testing import CliRunner

from difftest.cli.init import CONFIG, NAMES
from difftest.cli.main import main


def test_the_first_files_run_green_and_a_broken_kernel_is_red(
    pytester, in_process, monkeypatch
):
    monkeypatch.chdir(pytester.path)
    result = CliRunner().invoke(main, ["init"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:-1] == [*NAMES, CONFIG, "now: pytest --simulate"]
    ran = in_process("--hypothesis-seed=1")  # as editors do: pytest.ini asks
    # drawn, edges, the rejection, the example twice
    ran.assert_outcomes(passed=1 + 1 + 1 + 2)
    kernel = pytester.path / "scale.py"
    text = kernel.read_text()
    assert "x[first : first + count, :]" in text
    kernel.write_text(text.replace("x[first : first + count, :]", "x[0:count, :]"))
    ran = in_process("--simulate", "--hypothesis-seed=1", "-x")
    assert ran.parseoutcomes()["failed"] >= 1


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg"])
def test_a_configuration_stays_as_it_is_and_the_line_to_add_is_printed(tmp_path, name):
    (tmp_path / name).write_text("")
    result = CliRunner().invoke(main, ["init", str(tmp_path / "inner")])
    assert result.exit_code == 0, result.output
    assert sorted(file.name for file in (tmp_path / "inner").iterdir()) == sorted(NAMES)
    assert (tmp_path / name).read_text() == ""
    if name == "pyproject.toml":
        setting = 'difftest_simulate = "auto"'
    else:
        setting = "difftest_simulate = auto"
    assert f"{tmp_path / name} stays as it is; with {setting} among" in result.output
    result = CliRunner().invoke(main, ["init", str(tmp_path / "a b")])
    assert f'now: pytest --simulate "{tmp_path / "a b"}"' in result.output, (
        "a line for a shell"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_there_stays(tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path / name} is there already, and stays as it is" in result.output
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"

import pytest
from click.testing import CliRunner

from difftest.cli.main import main


def test_version_is_the_distributions():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert "0.1.0" in result.stdout


@pytest.mark.parametrize("command", ["run", "bench"])
def test_help_lists_the_commands(command):
    result = CliRunner().invoke(main, ["--help"])
    assert f"  {command} " in result.stdout


def test_an_unknown_command_is_one_clear_error():
    result = CliRunner().invoke(main, ["simulate"])
    assert result.exit_code == 2
    assert "No such command 'simulate'" in result.stderr

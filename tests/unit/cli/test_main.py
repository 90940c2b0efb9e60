import subprocess
import sys

from click.testing import CliRunner

import difftest
from difftest.cli.main import main


def test_version_is_the_distributions():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert "0.1.0" in result.stdout


def test_an_unknown_command_is_one_clear_error():
    result = CliRunner().invoke(main, ["simulate"])
    assert result.exit_code == 2
    assert "No such command 'simulate'" in result.stderr


def test_the_package_knows_its_version():
    assert CliRunner().invoke(main, ["--version"]).stdout.split()[-1] == difftest.__version__


def test_the_package_is_the_command():
    said = subprocess.check_output([sys.executable, "-m", "difftest", "--version"], text=True)
    assert said == f"difftest, version {difftest.__version__}\n"


def test_an_interrupt_has_the_exit_code_of_one(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text("raise KeyboardInterrupt\n")
    result = CliRunner().invoke(main, ["run", str(script)])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from click.testing import CliRunner

import difftest
from difftest.cli.main import main

ROOT = Path(__file__).parents[3]


def test_the_package_is_the_command():
    said = subprocess.check_output(
        [sys.executable, "-m", "difftest", "--version"], text=True
    )
    assert said == f"difftest, version {difftest.__version__}\n"
    assert difftest.__version__ == version("nki-difftest")


def test_an_interrupt_has_the_exit_code_of_one(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text("raise KeyboardInterrupt\n")
    result = CliRunner().invoke(main, ["run", str(script)])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_commands_import_only_the_modules_that_they_need():
    """A second of imports for a page of help is what people meet first."""
    tests = ["hypothesis", "pytest"]
    most = [*tests, "numpy", "rich", "difftest.simulator", "difftest.testing.contract"]
    for needless, commands in (
        (most, ([], ["bench"], ["init"], ["doctor"])),
        (
            [*tests, "rich"],
            (["trace"], ["check"], ["explain"], ["lint"], ["migrate"], ["run"]),
        ),
        (tests, (["profile"],)),
    ):
        code = (
            f"import sys; from difftest.cli.main import main\nfor words in {commands}:\n"
            "    main([*words, '--help'], standalone_mode=False)\n"
            f"    print('LOADED', words, *({{*{needless}}} & {{*sys.modules}}))"
        )
        said = subprocess.check_output([sys.executable, "-c", code], text=True)
        loaded = [line for line in said.splitlines() if line.startswith("LOADED")]
        assert loaded == [f"LOADED {words}" for words in commands]


def test_the_help_has_the_first_sentence_of_each_command():
    for group in (main, main.get_command(None, "bench")):
        narrow = (
            CliRunner()
            .invoke(group, ["--help"], terminal_width=80)
            .stdout.partition("\n")[2]
        )
        assert not re.findall(r".*\.\.\.\n", narrow)  # the first sentence fits
        page = " ".join(
            CliRunner().invoke(group, ["--help"], terminal_width=400).stdout.split()
        )
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            assert f" {name} {command.get_short_help_str(400)}" in page
            own = CliRunner().invoke(command, ["--help"], terminal_width=80).stdout
            assert not [line for line in own.splitlines() if len(line) > 80], name


def test_each_command_has_a_row_on_its_page():
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    for name in main.list_commands(None):
        assert f"| `difftest {name}" in page, name

"""The commands that the skill gives an agent run: all of them, on the files that it shows."""

import re
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from difftest.cli.main import main

PAGE = Path(__file__).parents[4] / "docs/agents/nki-difftest/SKILL.md"


def test_each_command_of_the_skill_does_what_the_page_says(tmp_path, monkeypatch):
    text = PAGE.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("kernel", "test_kernel"):  # of another test, in another folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        Path(name).write_text(code)
    said = {}
    for line in re.findall(r"^ *(difftest .*)$", text, re.MULTILINE):
        _, command, *arguments = shlex.split(line)
        result = CliRunner().invoke(main, [command, *arguments])
        assert result.exit_code == 0, (line, result.output)
        said[command] = result.output
    for name in set(sys.modules) - before:
        if name in ("kernel", "test_kernel"):
            del sys.modules[name]
    assert sorted(said) == ["check", "explain", "lint", "profile", "verdict"]
    assert said["verdict"].startswith("double: agrees (stage: time)\n")
    assert "predicted" in said["profile"]
    assert "remedy" in said["explain"]


def test_the_page_has_the_head_that_agents_read():
    assert re.match(
        r"---\nname: nki-difftest\ndescription: \|\n(  .+\n)+argument-hint: .+\n---\n\n# ",
        PAGE.read_text("utf-8"),
    )
    assert PAGE.parent.name == "nki-difftest"

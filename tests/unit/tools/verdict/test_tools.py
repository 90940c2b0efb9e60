"""The tools of an agent give the commands' answers."""

import subprocess

from difftest.tools.verdict.serve import PAGE, Tools


def test_a_long_answer_has_pages_and_one_run(monkeypatch):
    runs = []

    def run(arguments, **given):
        runs.append(arguments)
        text = "\n".join(f"row {row} of many rows" for row in range(400))
        return subprocess.CompletedProcess(arguments, 1, text, "")

    monkeypatch.setattr(subprocess, "run", run)
    tools = Tools()
    first = tools.lint(["kernel.py"])
    assert first.endswith("(page 1 of 3; ask for page=2)")
    rest = [tools.lint(["kernel.py"], page=page) for page in (2, 3)]
    assert len(runs) == 1
    assert rest[-1].endswith("row 399 of many rows\nexit code 1\n(page 3 of 3)")
    rows = [
        row
        for text in (first, *rest)
        for row in text.splitlines()
        if row.startswith("row")
    ]
    assert len(rows) == 400
    assert max(map(len, (first, *rest))) < PAGE + 100
    tools.lint(["kernel.py"])
    assert len(runs) == 2, "the first page is of the files as they are now"


def test_what_is_too_much_or_outside_is_told_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    many = tmp_path / "many"
    (many / ".venv").mkdir(parents=True)
    (many / ".venv" / "unread.py").touch()
    for number in range(2_001):
        (many / f"{number}.py").touch()
    assert "2,001 files" in Tools().lint(["many"])
    assert "outside of the folder" in Tools().explain("link")
    assert "without nulls" in Tools().explain("a\0b")


def test_a_candidates_words_come_to_a_model_without_control_characters(monkeypatch):
    said = "\x1b[2J\x9b\u202e\x00the\tkernel\nsays"
    done = subprocess.CompletedProcess([], 1, said, "\u2066")
    monkeypatch.setattr(subprocess, "run", lambda *words, **given: done)
    assert Tools().check("kernel.py:add") == "?[2J???the\tkernel\nsays\n?\nexit code 1"


def test_a_command_that_does_not_end_is_told():
    assert "took more than 0.01 s, and was killed" in Tools(0.01).explain("NCC_EBVF030")

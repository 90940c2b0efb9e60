"""`python -m conformance.released` reads each commit at its own SDK, and finds a denial."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conformance import released

TODAY = "import nki\n\n\n@nki.jit(mode='jax')\ndef kernel(x):\n    return x\n"
CLASSIC = "import neuronxcc.nki as nki\n\n\n@nki.jit\ndef kernel(x):\n    return x\n"
REFUSED = TODAY.replace("mode='jax'", "platform_target='trn2'")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with a release that holds both dialects, and a commit that is refused."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "src").mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "src" / "today.py").write_text(TODAY)
    (folder / "src" / "classic.py").write_text(CLASSIC)
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "README.md").write_text("# a page\n")
    commit = [*git, "-c", "commit.gpgsign=false", "commit", "-q", "-m", "a release"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run(commit, check=True)
    subprocess.run([*git, "tag", "v2.29.0"], check=True)
    (folder / "src" / "today.py").write_text(REFUSED)
    subprocess.run([*commit, "-a"], check=True)
    subprocess.run([*git, "tag", "later"], check=True)
    return folder


def test_each_release_is_read_at_its_own_sdk(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert released.main([str(clone), "v2.29.0"]) == 0
    said = capsys.readouterr().out
    assert "## library at the SDK of each release" in said
    row = said.splitlines()[-1]
    assert row.startswith("| v2.29.0 (")
    assert "| 2.29 | 3 | 1 | 0 | 1 [NKL115]" in row


def test_a_denial_ends_with_1_and_names_its_place(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert released.main([str(clone), "v2.29.0", "later=2.30"]) == 1
    said = capsys.readouterr().out
    assert "1 [NKL113]" in said
    assert "later:src/today.py:4: NKL113 nki.jit got platform_target=" in said
    assert released.main([str(clone), "later=2.28"]) == 0


def test_a_wrong_release_is_one_line(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert released.main([str(clone), "v2.21.0"]) == 2
    assert capsys.readouterr().err.startswith("conformance: ")
    with pytest.raises(SystemExit):
        released.main([str(clone), "later"])
    assert "later names no known SDK: write later=SDK" in capsys.readouterr().err

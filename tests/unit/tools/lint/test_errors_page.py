"""Each documented error of both dialects is reported by the tool that the page names."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.errors import PAGE, kernels, row, told
from difftest.tools.lint.check import rules
from tests.every import every

ROWS = PAGE.read_text(encoding="utf-8").splitlines()


@every("name, dialect, text", list(kernels()))
def test_each_documented_error_is_reported_by_some_check(
    name: str, dialect: str, text: str, tmp_path: Path
) -> None:
    who = told(name, dialect, text, tmp_path)
    assert any(who), "nobody says it"
    assert row(name, dialect, who) in ROWS, "python -m conformance.errors --write"


def test_nobody_tells_of_a_right_kernel(tmp_path: Path) -> None:
    [_, right] = re.findall(r"```python\n(.*?)```", rules()["NKL102"].page, re.DOTALL)
    assert told("NKL102", "today's", right, tmp_path) == ((), "", ())

"""Codes of the compiler and texts of its logs, with their causes."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.lint.check import rules
from difftest.lint.codes import CODES, TEXTS, Cause, explain
from tests.every import every

LOG = """
INFO: Compiling kernel
  File "/home/me/kernels/norm.py", line 41, in rms_norm
ERROR: [NCC_IXCG863] ISA check failed
    'src0' and 'src1' cannot both read from PSUM
"""


def run(*args):
    return CliRunner().invoke(main, ["explain", *args])


@every("row", [*CODES.values(), *TEXTS.values()])
def test_each_row_says_what_and_whence(row: Cause) -> None:
    assert row.meaning
    assert row.remedy
    assert row.source
    assert set(row.rules) <= set(rules())


def test_each_code_has_the_form_of_a_code() -> None:
    assert all(re.fullmatch(r"NCC_[A-Z]{4}\d{3}|NLA\d{3}|TEN\d{3}", code) for code in CODES)


def test_a_log_names_each_cause_once_with_the_line_near_it() -> None:
    first, second = explain(LOG + LOG)
    assert (first.said, first.cause) == ("NCC_IXCG863", CODES["NCC_IXCG863"])
    assert first.lines == ("/home/me/kernels/norm.py:41",)
    assert second.cause == TEXTS["cannot both read from PSUM"]


@pytest.mark.parametrize("what", ["NCC_ZZZZ999", "hello"])
def test_what_is_not_known_is_said_to_be(what: str) -> None:
    result = run(what)
    assert result.exit_code == 1
    assert what in result.output
    assert "know" in result.output


def test_a_log_without_a_code_shows_its_end(tmp_path) -> None:
    log = tmp_path / "compile.log"
    log.write_text("one\ntwo\nthree\nfour\n")
    result = run(str(log))
    assert result.exit_code == 1
    assert "four" in result.output
    assert "one" not in result.output.splitlines()
    assert "killed" in result.output

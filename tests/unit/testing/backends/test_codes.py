"""Codes of the compiler and texts of its logs, with their causes."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.testing.backends.codes import CODES, TEXTS, Cause, explain_log
from difftest.testing.backends.device.core import FAULTS, find_fault
from difftest.tools.lint.check import rules
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
def test_each_row_has_a_meaning_and_a_source(row: Cause) -> None:
    assert row.meaning
    assert row.remedy
    assert row.source
    assert set(row.rules) <= set(rules())


def test_each_code_has_the_form_of_a_code() -> None:
    assert [
        c for c in CODES if not re.fullmatch(r"NCC_[A-Z]{4}\d{3}|NRT_[A-Z_]+|F1\d\d", c)
    ] == []
    numbered = {code for code, cause in CODES.items() if cause.number is not None}
    assert numbered == {code for code in CODES if code.startswith("NRT_")}


def test_a_log_names_each_cause_once_with_the_line_near_it() -> None:
    first, second = explain_log(LOG + LOG)
    assert (first.said, first.cause) == ("NCC_IXCG863", CODES["NCC_IXCG863"])
    assert first.lines == ("/home/me/kernels/norm.py:41",)
    assert second.cause == TEXTS["cannot both read from PSUM"]


@pytest.mark.parametrize("what", ["NCC_ZZZZ999", "hello"])
def test_unknown_codes_are_reported_as_unknown(what: str) -> None:
    result = run(what)
    assert result.exit_code == 1
    assert what in result.output
    assert "know" in result.output


@every(
    "code",
    [
        "NCC_EBIR033",
        "NCC_IBIR605",
        "NCC_IBIR243",
        "NCC_INKI016",
        "NCC_EVRF029",
        "NCC_EMOD018",
        "NCC_IBIR229",
        "NCC_ITEN404",
        "F134",
        "F137",
        "NRT_TIMEOUT",
        "NRT_EXEC_UNIT_UNRECOVERABLE",
        *FAULTS,
    ],
)
def test_each_code_that_the_device_knows_is_explained(code: str) -> None:
    result = run(code)
    assert result.exit_code == 0
    assert result.output.startswith(f"{code}")
    assert FAULTS[code].hint == f"{CODES[code].meaning}: {CODES[code].remedy}"


@every(
    "said, code",
    [
        ("TEN404", "NCC_ITEN404"),
        ("ITEN404", "NCC_ITEN404"),
        ("NCC_TEN404", "NCC_ITEN404"),
        ("[NLA001]", "NCC_INLA001"),
        ("EVRF007", "NCC_EVRF007"),
        ("[EBVF030]", "NCC_EBVF030"),
        ("status_code=1006", "NRT_EXEC_OOB"),
        ("ERROR NRT:nrt_execute returned 101", "NRT_EXEC_UNIT_UNRECOVERABLE"),
        ("NRT_TIMEOUT(5)", "NRT_TIMEOUT"),
    ],
)
def test_a_code_with_and_without_its_prefix_is_one_code(said: str, code: str) -> None:
    [answer] = explain_log(f"{said}: something\n{code}\n")
    assert answer.cause == CODES[code]
    assert answer.times == 2
    fault = find_fault(said)
    assert fault is not None
    assert fault.name == code


@every(
    "text",
    [
        "exit status 1",
        "Non-zero exit status (1) for command",
        "status 5",
        "returned 3 rows",
        "ABC123 and F100",
        "a value of 1006",
        "NRT_SUCCESS",
        "state NRT_STATE_START",
    ],
)
def test_text_without_a_code_is_not_counted(text: str) -> None:
    assert [one.said for one in explain_log(text)] == []


def test_a_status_by_number_and_name_is_one_answer() -> None:
    """A public page shows NRT_FAILURE(6), though 6 is NRT_HW_ERROR."""
    [answer] = explain_log("NRT Error NRT_FAILURE(6): failed")
    assert answer.said == "NRT_FAILURE"


def test_unknown_codes_of_a_log_are_counted_and_named(tmp_path) -> None:
    log = tmp_path / "compile.log"
    log.write_text(
        LOG + "[NCC_IZZZ999] a\n[NCC_IZZZ999] b\n[EQQQ001] c\nNRT_EXEC_NEW\n"
    )
    result = run(str(log))
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "NCC_IZZZ999: not in the public tables that difftest knows, 2 times" in said
    assert "3 of 5 codes in" in said
    assert "are not known: NCC_IZZZ999, EQQQ001, NRT_EXEC_NEW" in said


def test_a_log_without_a_code_shows_its_end(tmp_path) -> None:
    log = tmp_path / "compile.log"
    log.write_text("one\ntwo\nthree\nfour\n")
    result = run(str(log))
    assert result.exit_code == 1
    assert "four" in result.output
    assert "one" not in result.output.splitlines()
    assert "killed" in result.output

"""The private parts of pytest that the package uses, each by name: see pytest_internals.py."""

import inspect

import pytest
from _pytest import terminal
from _pytest._code import code
from _pytest.junitxml import LogXML

from difftest.testing.session.pytest_internals import (
    set_failure_text,
    untrimmed_messages,
)
from tests.every import every

LONG = "a message that a narrow terminal cuts"


def test_only_the_given_messages_are_whole():
    trim = terminal._format_trimmed
    assert trim(" - {}", LONG, 20) == " - a message that..."
    with untrimmed_messages([LONG]):
        assert terminal._format_trimmed(" - {}", LONG, 20) == f" - {LONG}"
        assert terminal._format_trimmed(" - {}", f"{LONG}!", 20) == trim(
            " - {}", f"{LONG}!", 20
        )
    assert terminal._format_trimmed is trim


@every(
    "function, parameters",
    [
        (terminal._format_trimmed, ["format", "msg", "available_width"]),
        (code.ReprFileLocation, ["path", "lineno", "message"]),
        (code.ReprTracebackNative, ["tblines"]),
        (code.ReprExceptionInfo, ["reprtraceback", "reprcrash"]),
        (LogXML.add_global_property, ["name", "value"]),
        (pytest.Function._initrequest, ["self"]),
    ],
)
def test_pytest_keeps_its_private_signatures(function, parameters):
    assert set(parameters) <= set(inspect.signature(function).parameters)


def test_a_report_has_the_text_and_the_message(request):
    report = pytest.TestReport("a", ("a.py", 1, "a"), {}, "failed", None, "call")
    set_failure_text(report, request.node, ["one", "  two: 2"], LONG)
    assert report.longreprtext == "one\n  two: 2"
    assert report.longrepr.reprcrash.message == LONG
    assert report.longrepr.reprcrash.path == str(request.node.path)

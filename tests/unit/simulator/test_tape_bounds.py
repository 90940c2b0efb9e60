"""A tape from an untrusted process is bounded before it is parsed."""

import json
from unittest.mock import Mock

import pytest

from difftest.simulator import tape_json
from difftest.simulator.tape_json import TapeFormatError, check_bounds, tape_from_json
from tests.every import every


@every(
    "text, received",
    [
        ("[" + '"x",' * (tape_json.MOST_BYTES // 4) + "0]", "bytes"),
        ("[" + "0," * tape_json.MOST_ITEMS + "0]", "items"),
        ("[" * 65 + "]" * 65, "a depth of 65"),
        ('{"a":' * 65 + "0" + "}" * 65, "a depth of 65"),
        ('["]]]"' + ",[" * 65 + "]" * 66, "a depth of 66"),
    ],
)
def test_a_tape_beyond_a_limit_is_not_parsed(monkeypatch, text, received):
    monkeypatch.setattr(json, "loads", Mock(side_effect=AssertionError("parsed")))
    with pytest.raises(TapeFormatError, match=f"not a tape: received .*{received}"):
        tape_from_json(text)


def test_brackets_in_a_text_are_not_nested():
    check_bounds('["' + "[" * 100 + r"\"[" + '"]')

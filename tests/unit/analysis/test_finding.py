import json

import pytest

from difftest.analysis.finding import Finding, Severity
from difftest.simulator.errors import innermost_location
from difftest.simulator.trace import Location

LINES = (Location("none.py", 7), Location("none.py", 3))


def finding(**fields):
    return Finding(
        **{
            "id": "late-wait",
            "severity": Severity.ERROR,
            "happened": "the store reads what nothing wrote",
            "rule": "a store waits for what it stores",
            "locations": LINES,
            "remedy": "store after the loop",
            "evidence": (4, 9),
            **fields,
        }
    )


def test_the_first_line_is_the_most_telling():
    assert finding().location == LINES[0]
    assert finding(locations=()).location is None


def test_a_finding_as_json():
    assert json.loads(json.dumps(finding().as_mapping())) == {
        "id": "late-wait",
        "severity": "error",
        "happened": "the store reads what nothing wrote",
        "rule": "a store waits for what it stores",
        "locations": [{"file": "none.py", "line": 7}, {"file": "none.py", "line": 3}],
        "remedy": "store after the loop",
        "evidence": [4, 9],
    }


def test_a_line_of_a_helper_is_named_with_its_calls():
    kernel, helper = LINES
    place = innermost_location((helper, kernel))
    assert (place, place.calls) == (helper, (kernel,))
    assert str(place) == "none.py:3, called at none.py:7"
    assert (
        innermost_location((helper,)).calls
        == innermost_location((helper, helper)).calls
        == ()
    )
    (line,) = finding(locations=(place,)).as_mapping()["locations"]
    assert line == {
        "file": "none.py",
        "line": 3,
        "called_at": [{"file": "none.py", "line": 7}],
    }


def test_nothing_is_left_out_but_evidence():
    for name in ("id", "severity", "happened", "rule", "locations", "remedy"):
        fields = {
            field: getattr(finding(), field)
            for field in Finding.__dataclass_fields__
            if field != name
        }
        with pytest.raises(TypeError, match=name):
            Finding(**fields)
    assert finding().evidence == (4, 9)

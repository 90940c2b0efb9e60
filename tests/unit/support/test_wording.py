"""Counts with their nouns, and suggestions for a misspelt name."""

from difftest.support.wording import count_of, did_you_mean
from tests.every import every


@every(
    "number, text",
    [(0, "0 cases"), (1, "1 case"), (2, "2 cases")],
)
def test_a_noun_agrees_with_its_number(number, text):
    assert count_of(number, "case") == text


def test_the_nearest_name_is_suggested():
    names = ["activation", "activation_reduce"]
    assert did_you_mean("activaton", names) == "did you mean activation?"
    assert did_you_mean("matmul", names) == ""
    assert did_you_mean("act", names, 0.1).startswith("did you mean ")

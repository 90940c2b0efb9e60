import subprocess
import sys

import pytest
from hypothesis import strategies as st

from difftest.testing.contract.spec import Input
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.examples import minimal_example
from difftest.testing.drawing.explicit import minimal_case
from tests.unit.standin import add_spec


def nothing():
    return st.integers().filter(lambda value: False)


def test_it_is_what_hypothesis_tries_first():
    assert minimal_example(lambda: st.tuples(st.integers(3, 9), st.booleans())) == (
        3,
        False,
    )


def test_a_strategy_without_examples_is_soon_given_up():
    drawn = []

    def refused():
        drawn.append(1)
        return nothing()

    assert minimal_example(refused) is None
    assert len(drawn) < 10


def test_an_error_of_the_spec_is_raised():
    def wrong():
        raise SpecError("domain: received None")

    with pytest.raises(SpecError, match="received None"):
        minimal_example(wrong)


def test_an_example_for_which_an_input_has_no_data_is_one_clear_error():
    spec = add_spec(inputs={"a": Input("n", data=lambda n: nothing()), "b": "n"})
    with pytest.raises(
        SpecError, match=r"inputs\['a'\]\.data: found nothing for \{'n': 3\}"
    ):
        minimal_case(spec, {"n": 3}, "float32")


FROZEN = """
import gc
from hypothesis import strategies as st
from difftest.testing.drawing.examples import examples, make_random_numbers

make_random_numbers()
gc.freeze()
print(len(examples(st.integers(), 3)))
"""


def test_hypothesis_knows_its_random_numbers_in_a_frozen_process():
    """Python 3.14 tracks each dictionary, and the frozen ones are none that Hypothesis sees."""
    words = [sys.executable, "-W", "error", "-c", FROZEN]
    run = subprocess.run(words, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("3\n", "")

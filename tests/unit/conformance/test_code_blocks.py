"""Code blocks of pages: found, told from fragments, run, and judged."""

import numpy as np
import pytest

from conformance.aws_documentation import prelude
from conformance.code_blocks import Block, Call, Inputs, Page, blocks_of, free_names
from conformance.outcomes import FAILED, PASSED, SKIPPED
from difftest.testing.host.installation import embedded_with_predictions
from tests.every import every

PAGE = """
A page
======

.. code-block:: python
   :linenos:

   t = nl.full((4, 8), 2.0, dtype=nl.float32)

   assert t.shape == (4, 8)

Prose.

.. code-block:: bash

   pip install nki

.. code-block::

   assert t[:, 0:2].shape == (4, 2)
"""
KERNEL = """
@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out
"""
ONES = np.ones((4, 8), np.float32)


@pytest.fixture(autouse=True)
def modules():
    with embedded_with_predictions():
        yield


def outcome(text, inputs=None, before=()):
    blocks = [
        *(Block("p.rst", n + 1, one) for n, one in enumerate(before)),
        Block("p.rst", 9, text),
    ]
    page = Page(blocks, {9: inputs} if inputs else {}, prelude)
    last = page.outcomes(60)[-1]
    return last.result, last.why


def test_blocks_are_found_with_their_lines_and_without_options():
    first, second = blocks_of("p.rst", PAGE)
    assert (first.name, second.name) == ("p.rst:5", "p.rst:18")
    assert first.text.startswith("t = nl.full")
    assert first.text.count("\n") == 3


def test_the_end_of_a_docstring_is_no_part_of_its_last_block():
    text = '    .. code-block:: python\n\n        x = 1\n        y = x"""\n    ...\n'
    (block,) = blocks_of("m.py", text)
    assert block.text == "x = 1\ny = x\n"


def test_a_block_runs_with_the_blocks_that_it_needs():
    assert [
        one.result for one in Page(list(blocks_of("p", PAGE)), {}, prelude).outcomes(60)
    ] == [
        PASSED,
        PASSED,
    ]


def test_names_that_nothing_binds():
    text = "import math\ndef f(x):\n    return math.pi * x + y\nprint(z, len([f]))\n"
    assert free_names(text) == {"y", "z"}


@every(
    "text, why",
    [
        ("def f(:\n", "no program"),
        ("t = nl.load(...)\n", "leaves parts out"),
        ("u = unknown + other\n", "the page does not define: other and 1 more"),
        ("# a comment\n", "no statement"),
        (KERNEL, "it was loaded"),
    ],
)
def test_a_fragment_is_not_run_and_says_why(text, why):
    result, reason = outcome(text)
    assert result == SKIPPED
    assert why in reason


def test_an_index_may_have_an_ellipsis():
    assert outcome("t = nl.zeros((4, 8), nl.float32)\nt[...] = 1.0\n")[0] == PASSED


@every("other, result", [("5.0", PASSED), ("4.0", FAILED)])
def test_an_assertion_of_a_tile_is_about_every_element(other, result):
    text = f"a = nl.full((4, 8), 5.0, nl.float32)\nb = nl.full((4, 8), {other}, nl.float32)\n"
    assert outcome(f"{text}b[0:1, 0:1] = 5.0\nassert nl.equal(a, b)\n")[0] == result


@every("factor, result", [(2, PASSED), (3, FAILED)])
def test_the_result_of_a_call_is_compared(factor, result):
    inputs = Inputs(calls=[Call("double", (ONES,), factor * ONES)])
    assert outcome(KERNEL, inputs)[0] == result


@every("factor, result", [(2, PASSED), (3, FAILED)])
def test_the_output_of_a_block_is_compared(factor, result):
    text = "nl.store(y, nl.multiply(nl.load(x), 2.0))\n"
    inputs = Inputs({"x": ONES, "y": 0 * ONES}, expected={"y": factor * ONES})
    assert outcome(text, inputs)[0] == result
    assert ONES.sum() == 32


@every(
    "text, result",
    [
        ("nl.ndarray((129, 1), nl.float32)\n", PASSED),
        ("nl.ndarray((9, 1), nl.float32)\n", FAILED),
    ],
)
def test_a_misuse_must_raise(text, result):
    assert outcome(text, Inputs(raises="exceeds maximum 128"))[0] == result


def test_a_block_that_prints_that_it_is_wrong_failed():
    assert (
        outcome("print('FAILED: Kernel computed output off from expected')\n")[0]
        == FAILED
    )
    assert outcome("print('a different output')\n")[0] == PASSED


def test_a_block_that_does_not_end_is_ended():
    block = Block("p.rst", 1, "while True:\n    pass\n")
    (ended,) = Page([block], {}, prelude).outcomes(0.2)
    assert (ended.result, ended.why) == (
        FAILED,
        "TimeoutError: it took longer than 0.2 s",
    )


def test_a_block_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.delenv("OF_A_BLOCK", raising=False)
    import os

    assert (
        outcome("import os\nos.environ['OF_A_BLOCK'] = '1'\nprint(os.environ)\n")[0]
        == PASSED
    )
    assert "OF_A_BLOCK" not in os.environ


def test_a_page_may_say_to_save_a_block_as_a_module():
    kernel = Block("p.rst", 1, KERNEL)
    text = "from saved import double\nassert double(np.ones((2, 2), np.float32))[0, 0] == 2\n"
    driver = Block("p.rst", 9, text)
    inputs = {1: Inputs(saved_as="saved", calls=[Call("double", (ONES,))])}
    assert [
        one.result for one in Page([kernel, driver], inputs, prelude).outcomes(60)
    ] == [
        PASSED,
        PASSED,
    ]
    assert Page([kernel, driver], {}, prelude).outcomes(60)[1].result == FAILED


def test_a_while_loop_finds_its_line():
    text = "r = nisa.register_alloc(1)\nzero = nl.zeros((1, 1), nl.int32)\n"
    assert outcome(f"{text}while r:\n    nisa.register_load(r, zero)\n")[0] == PASSED

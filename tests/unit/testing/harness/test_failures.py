import shlex

from difftest.testing.backends.base import Completed, Crashed, Rejected
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Zeros
from difftest.testing.contract.spec import KernelSpec, Rejection
from difftest.testing.drawing.explicit import case_from_json
from difftest.testing.harness.compare import compare
from difftest.testing.harness.differential import evaluate_reference
from difftest.testing.harness.failures import (
    DifferentialFailure,
    Reproduction,
    case_rows,
    describe_box,
    quote_command,
    rejection_text,
)
from difftest.testing.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
)
from tests.every import every
from tests.unit.standin import add, add_reference, add_spec

SPEC = add_spec()
CASE = Case({"n": 2}, "float32", {"a": Zeros(), "b": Fill(1.0, ((1, 2.0),))})
AGAIN = Reproduction("tests/test_add.py::test_add", ("--simulate",))


def text(*given):
    return str(DifferentialFailure(*given))


def test_the_whole_report_of_a_mismatch():
    _, b = SPEC.inputs_of(CASE)
    verdict = compare(evaluate_reference(SPEC, CASE).bounds, [b * 0 + 1])
    assert text(SPEC, CASE, {"plain": verdict}, AGAIN).splitlines() == [
        "add disagrees with its reference",
        "  case:        n=2, float32",
        "  a:           (2,) Zeros()",
        "  b:           (2,) Fill(value=1.0, overrides=((1, 2.0),))",
        "  plain:       values differ by more than rounding explains",
        "  first wrong: out[1]: got 1.0, expected 2.0",
        "  allowed:     1.9999999 to 2.0000002; the error is 4.19e+06 ULP of float32",
        "  wrong:       1 of 2 elements, filling [1:2], the tail of axis 0",
        "  run again:   pytest --simulate tests/test_add.py::test_add --case "
        "'" + CASE.to_json() + "'",
    ]


def test_a_case_of_an_empty_domain_is_its_dtype():
    spec = KernelSpec(
        kernel=add, reference=add_reference, domain={}, inputs={"a": "2", "b": "2"}
    )
    case = Case({}, "float32", {"a": Zeros(), "b": Zeros()})
    first, *_ = case_rows(spec, case)
    assert first == ("case", "float32")


def test_the_line_to_run_again_survives_the_shell():
    words = shlex.split(AGAIN.command(CASE))
    assert words[:4] == [
        "pytest",
        "--simulate",
        "tests/test_add.py::test_add",
        "--case",
    ]
    assert case_from_json(words[4], SPEC) == CASE


def test_without_a_test_there_is_no_line_to_run_again():
    assert "run again" not in text(SPEC, CASE, {"plain": OneSided("kernel", E)}, None)


E = ValueError("two\nlines")


@every(
    "verdict, line",
    [
        (Match(5, exact=True), "agrees on 5 elements, bit for bit"),
        (Match(5, exact=False), "agrees on 5 elements, within rounding"),
        (
            Match(5, exact=True, nonfinite=2),
            "agrees on 5 elements, bit for bit; 2 more are not finite, and prove nothing",
        ),
        (Mismatch(kind="shape", output=0, message="shapes differ"), "shapes differ"),
        (OneSided("kernel", E), "only the kernel rejects the case: ValueError: two"),
        (
            OneSided("reference", E),
            "only the reference rejects the case: ValueError: two",
        ),
        (
            BothRejected(E, E),
            "kernel and reference both reject the case: ValueError: two",
        ),
        (Inconclusive("too vague"), "inconclusive: too vague"),
        (OneSided("kernel", KeyError()), "only the kernel rejects the case: KeyError"),
    ],
)
def test_each_verdict_has_its_line(verdict, line):
    said = text(SPEC, CASE, {"one": verdict, "two": OneSided("kernel", E)}, None)
    assert f"  one:         {line}\n" in said


def test_lines_of_an_error_are_indented():
    said = text(SPEC, CASE, {"plain": OneSided("kernel", E)}, None)
    assert said.endswith(": ValueError: two\n" + " " * 15 + "lines")


@every(
    "wrong, box, shape, text",
    [
        (6, ((0, 2), (0, 3)), (2, 3), "which is all of them"),
        (2, ((0, 2), (1, 2)), (2, 3), "filling [0:2, 1:2]"),
        (2, ((0, 2), (1, 3)), (2, 3), "all in [0:2, 1:3], the tail of axis 1"),
        (4, ((2, 4), (4, 6)), (4, 6), "filling [2:4, 4:6], the tail of axis 0 and 1"),
    ],
)
def test_where_the_wrong_elements_lie(wrong, box, shape, text):
    elements = shape[0] * shape[1]
    mismatch = Mismatch("value", 0, "", elements, wrong, None, box, shape)
    assert describe_box(mismatch) == text


REJECTION = Rejection({"n": 3}, match="even", shapes={"b": (4,)})


@every(
    "outcome, happened",
    [
        (Completed(()), "accepted it"),
        (Rejected(ValueError("odd")), "rejected it, but with ValueError: odd"),
        (Crashed(ValueError("odd")), "crashed: ValueError: odd"),
    ],
)
def test_the_whole_report_of_a_missing_rejection(outcome, happened):
    assert rejection_text(SPEC, REJECTION, "plain", outcome).splitlines() == [
        "add must reject n=3, b of shape (4,)",
        "  accepted:    an error of the kernel's contract whose text matches 'even'",
        f"  plain:       {happened}",
    ]


@every("windows, quoting", [(False, "'{\"a b\":1}'"), (True, '"{\\"a b\\":1}"')])
def test_the_line_is_quoted_for_the_shell_at_hand(windows, quoting):
    assert (
        quote_command(["pytest", '{"a b":1}'], windows=windows) == f"pytest {quoting}"
    )

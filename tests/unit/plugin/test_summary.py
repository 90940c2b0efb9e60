from collections import Counter
from types import SimpleNamespace

from difftest.plugin.summary import (
    all_coverage_lines,
    coverage_lines,
    summary_lines,
)
from difftest.testing.harness.coverage import Coverage
from difftest.testing.harness.tally import Counts, Tally
from difftest.testing.harness.verdict import Match
from difftest.testing.report.document import BUG, also_wrong, bugs_of

TALLY = Tally(
    {
        ("matmul", "embedded"): Counts(
            cases=50, elements=123456, exact=20, rejections=2
        ),
        ("add", "embedded"): Counts(
            cases=7, elements=9, both_rejected=1, inconclusive=3
        ),
    },
    Counter(
        {
            "add: no digit of output 0 is sure": 3,
            "matmul: no digit of output 1 is sure": 1,
        }
    ),
    agreements={("add (neuronxcc)", "add (nki)", "embedded"): Counts(cases=7, exact=6)},
)


def test_the_whole_summary():
    assert summary_lines(TALLY, ["embedded"], []) == [
        "kernel  cases  elements  bit for bit  rejections  both reject  inconclusive",
        "add         7         9            0           0            1             3",
        "matmul     50    123456           20           2            0             0",
        "add (neuronxcc) and add (nki) on embedded: all bits agree in 6 of 7 cases",
        "inconclusive: 4 cases of add, matmul: no digit of output 0 is sure",
    ]


def test_identical_kernels_share_a_row_and_zeros_have_no_column():
    counts = Counts(cases=7, elements=9)
    rows = {(f"add ({one})", "embedded"): counts for one in ("neuronxcc", "nki")}
    tally = Tally(
        rows,
        agreements={
            ("add (nki)", "add (neuronxcc)", "embedded"): Counts(cases=7, exact=7)
        },
    )
    assert summary_lines(tally, ["embedded"], []) == [
        "kernel  cases  elements",
        "add        14        18",
        "identical kernels: all bits agree in all cases of 1 pair",
    ]
    tally.agreements["add (nki)", "add (neuronxcc)", "embedded"] = Counts(
        cases=7, exact=6
    )
    assert [line.split("  ")[0] for line in summary_lines(tally, ["embedded"], [])][
        1:3
    ] == [
        "add (neuronxcc)",
        "add (nki)",
    ]


def test_backends_that_did_not_run_are_listed_with_v():
    assert summary_lines(TALLY, ["embedded"], [], verbose=True)[-2:] == [
        "not run: sdk (--simulate=sdk was not given)",
        "not run: device (--device was not given)",
    ]


def test_points_that_need_no_action_are_listed_with_v():
    """Many kernels without points to act on share a row; -v shows elements that are not finite.

    A reason has its cause and its remedy.
    """
    row = Counts(cases=7, elements=9, nonfinite=5)
    rows = {(f"add{n:02}", "embedded"): row for n in range(11)}
    rows["add03", "embedded"] = Counts(cases=2, elements=3, inconclusive=1)
    tally = Tally(rows, Counter({"add03: all is NaN; the data do it; give data=": 1}))
    assert summary_lines(tally, ["embedded"], []) == [
        "kernel          cases  elements  inconclusive",
        "add03               2         3             1",
        "10 others (-v)     70        90             0",
        "inconclusive: 1 case of add03: all is NaN; give data=",
    ]
    head, *told = summary_lines(tally, ["embedded"], [], verbose=True)
    assert head == "kernel  cases  elements  inconclusive  not finite"
    assert len(told) == 11 + 1 + 2
    assert (
        told[11]
        == "inconclusive: 1 case of add03: all is NaN; the data do it; give data="
    )
    rows["add03", "embedded"] = row
    assert summary_lines(tally, ["embedded"], [])[1].startswith("11 kernels (-v) ")


def test_a_run_with_a_backend_and_no_kernel_test_says_so():
    assert summary_lines(Tally(), ["embedded"], [])[0] == "no kernel test ran"


def test_modules_that_were_left_out_are_counted():
    assert summary_lines(None, [], {"a.py"}) == [
        "1 module of kernel tests was not collected, because no backend was requested: run with "
        "--simulate (a simulator) or --device (a NeuronCore)"
    ]
    assert summary_lines(None, [], {"a.py", "b.py"})[0].startswith(
        "2 modules of kernel tests were not collected"
    )


def test_a_session_without_kernels_says_nothing():
    assert summary_lines(None, [], []) == []


def test_the_summary_names_the_first_of_many_unreached_lines(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("for tile in tiles:\n" * 9)
    coverage = Coverage(unknown={"another tool traces"})
    coverage.add_function("add", {(str(file), line, True) for line in range(1, 9)})
    for turn in (0, 1):
        # and no third: nothing in the domain may have one
        coverage.covered.add((str(file), 1, turn))
    tally = Tally(coverage=coverage)
    assert list(coverage_lines(tally)) == [
        f"no case: {file}:2, 3, 4, 5, 6 and 2 more: it never ran (add)"
    ]
    assert list(all_coverage_lines(tally))[14:] == [
        f"no case: {file}:8: it never ran (add)",
        "           for tile in tiles:",
        "the branches and loops of some cases are unknown: another tool traces",
    ]
    for number in range(7):
        coverage.add_function(f"sub{number}", {(f"{file}{number}", 4, True)})
    assert list(coverage_lines(tally))[4:] == [
        f"no case: {file}3:4: it never ran (sub3)",
        "no case: and 3 more branches and loops; -v has all",
    ]


def test_a_branch_that_was_aimed_at_and_missed_comes_before_other_sentences(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("if rows == 217:\n    a\nb = 1 if rows == 31 else 2\n")
    coverage = Coverage(tried={(str(file), 1, 3, "nearest: rows=214")})
    coverage.add_function("add", {(str(file), 1, False)})
    coverage.covered.add((str(file), 1, 1))
    coverage.expressions |= {(str(file), 3, "add", "nearest: rows=30")}
    tally = Tally(coverage=coverage, doubts={"a doubt"})
    tally.count("add", "embedded", Match(4, exact=True))
    assert summary_lines(tally, ["embedded"], [])[2:] == [
        f"no case: {file}:1: never true (add): nearest: rows=214",
        f"no case: {file}:3: its condition never changes (add): nearest: rows=30",
        "exact run: a doubt",
    ]
    coverage.expressions |= {(str(file), 3, "sub", "")}  # another test has met it
    assert "its condition" not in "".join(summary_lines(tally, ["embedded"], []))


def test_reports_of_workers_are_in_the_order_of_the_tests():
    """As they come, each run would name the other cases of a bug in another order."""
    cases = {"": 0, "float32": 1, "bfloat16": 2, "at the edges": 3}
    reports = [
        SimpleNamespace(item_index=cases[case], **{BUG: ["test.py bug", case, "title"]})
        for case in ("bfloat16", "at the edges", "", "float32")
    ]
    ((lead, *others),) = bugs_of(reports)
    assert lead.item_index == 0
    assert also_wrong(others) == "3 other cases (float32, bfloat16, at the edges)"

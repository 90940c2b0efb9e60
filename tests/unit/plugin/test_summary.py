from difftest.harness.coverage import Coverage
from difftest.harness.tally import Counts, Tally
from difftest.plugin.summary import coverage_lines, summary_lines

TALLY = Tally(
    {
        ("matmul", "embedded"): Counts(cases=50, elements=123456, exact=20, rejections=2),
        ("add", "embedded"): Counts(cases=7, elements=9, both_rejected=1, inconclusive=3),
    },
    {"add: vague"},
    agreements={("add (neuronxcc)", "add (nki)", "embedded"): (6, 7)},
)


def test_the_whole_summary():
    assert summary_lines(TALLY, ["embedded"], [], 120) == [
        "kernel  backend   cases  elements  bit for bit  rejections  both reject  inconclusive",
        "add     embedded      7         9            0           0            1             3",
        "matmul  embedded     50    123456           20           2            0             0",
        "add (neuronxcc) and add (nki) on embedded: all bits agree in 6 of 7 cases",
        "inconclusive: add: vague",
        "not run: sdk (--simulate=sdk was not given)",
        "not run: device (--device was not given)",
    ]


def test_elements_that_are_not_finite_have_a_column_where_there_are_any():
    tally = Tally({("add", "embedded"): Counts(cases=7, elements=9, nonfinite=5)})
    head, row, *_ = summary_lines(tally, ["embedded"], [], 120)
    assert head.endswith("  inconclusive  not finite")
    assert row.split()[-2:] == ["0", "5"]


def test_a_narrow_terminal_does_not_cut_the_numbers():
    assert summary_lines(TALLY, ["embedded"], [], 20) == summary_lines(TALLY, ["embedded"], [], 120)


def test_a_run_with_a_backend_and_no_kernel_test_says_so():
    assert summary_lines(Tally(), ["embedded"], [], 80)[0] == "no kernel test ran"


def test_modules_that_were_left_out_are_counted():
    assert summary_lines(Tally(), [], {"a.py"}, 80) == [
        "1 module of kernel tests was not collected, for no backend was asked for: run with "
        "--simulate (a simulator) or --device (a NeuronCore)"
    ]
    assert summary_lines(Tally(), [], {"a.py", "b.py"}, 80)[0].startswith(
        "2 modules of kernel tests were not collected"
    )


def test_a_session_without_kernels_says_nothing():
    assert summary_lines(Tally(), [], [], 80) == []


def test_of_many_places_that_no_case_reached_the_first_few_are_named(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("for tile in tiles:\n" * 9)
    coverage = Coverage(unknown={"another tool traces"})
    coverage.saw("add", {(str(file), line): True for line in range(1, 9)})
    assert coverage_lines(coverage, verbose=False)[4:] == [
        f"no case: {file}:5: it never ran (add)",
        "no case: and 3 more branches and loops; -v has all",
        "not every case's branches and loops are known: another tool traces",
    ]
    assert coverage_lines(coverage, verbose=True)[14:16] == [
        f"no case: {file}:8: it never ran (add)",
        "           for tile in tiles:",
    ]

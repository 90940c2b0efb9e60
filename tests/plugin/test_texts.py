"""The output of a run, line by line: other lines between the named ones fail the test."""

import json

from click.testing import CliRunner

from difftest.cli.main import main
from tests.plugin.conftest import KERNEL, MORE, REFERENCE

FILES = "--junitxml=r.xml", "--difftest-report=r.md"
FAR = "nl.multiply(nl.multiply(nl.add(nl.load(a), nl.load(b)), 3e38), 3e38)"


def test_the_whole_text_of_a_failure(project):
    """Print the report, the comparisons, and one last line with the message, and nothing more."""
    project.add_test("subtract", edges=True)
    coloured = project.run("--simulate", "--hypothesis-seed=1", "--color=yes", *FILES)
    assert "\x1b[34m  case:\x1b[0m        m=1, n=1, float32" in coloured.stdout.str()
    assert "\x1b" not in (project.pytester.path / "r.md").read_text()
    result = project.run("--simulate", "--hypothesis-seed=1", *FILES)
    result.assert_outcomes(failed=2)
    headline = "subtract: wrong algorithm at m=1, n=1, float32: out[[]0, 0[]]"
    result.stdout.fnmatch_lines(
        [
            "test_add.py FF *",
            "",
            "=* FAILURES =*",
            "_* test_add _*",
            "subtract disagrees with its reference",
            "  case:        m=1, n=1, float32",
            "  a:           (1, 1) Zeros()",
            "  b:           (1, 1) Ones()",
            "  minimal:     no case with smaller m or n fails",
            "  embedded:    the algorithm differs: without rounding too, values are wrong",
            "  first wrong: out[[]0, 0[]]: got -1.0, expected 1.0",
            "  written by:  kernel.py:*: nisa.dma_copy(src=nisa.tensor_tensor(*), dst=result)",
            "  allowed:     exactly 1.0; the error is 1.68e+07 ULP of float32",
            "  wrong:       1 of 1 elements, which is all of them",
            "  looks like:  a wrong sign: as if b were negative (in m=*, which fails too)",
            "  also wrong:  1 other case (at the edges)",
            "  run again:   pytest --simulate test_add.py::test_add --case '{*}'",
            "- generated xml file: *",
            "=* kernels against their references =*",
            "kernel    cases  elements*",
            "subtract *",
            "=* short test summary info =*",
            f"FAILED test_add.py::test_add - {headline}",
            "=* 2 failed in *",
        ],
        consecutive=True,
    )
    headline = headline.replace("[[]", "[").replace("[]]", "]")
    text, page = (
        (project.pytester.path / file).read_text() for file in ("r.xml", "r.md")
    )
    assert text.count(f'<failure message="{headline}"') == 2
    assert page.count(f"### ❌ {headline}\n") == 1


def test_the_whole_text_of_a_green_run(project):
    project.add_test(more=MORE)
    result = project.run("--simulate", "--hypothesis-seed=1")
    result.stdout.fnmatch_lines(
        [
            "collected 4 items",
            "",
            "test_add.py .... * [[]100%]",
            "",
            "=* kernels against their references =*",
            "kernel  cases  elements  bit for bit  rejections",
            "add         *",
            "=* 4 passed in *",
        ],
        consecutive=True,
    )


def test_the_whole_text_of_a_refusal(project):
    """The kernel's own line stands once, and no frame of the simulator's; pytest cuts no line."""
    project.add_test(more='examples=[{"m": 200, "n": 1}],')
    result = project.run("--simulate", "test_add.py::test_add[m=200-n=1-float32]")
    result.stdout.fnmatch_lines(
        [
            "_* test_add[[]m=200-n=1-float32[]] _*",
            "add disagrees with its reference",
            "  case:        m=200, n=1, float32",
            "  a:           (200, 1) Random(seed=0, spread=0)",
            "  b:           (200, 1) Random(seed=1, spread=0)",
            "  embedded:    only the kernel rejects the case: LimitError: a tile has 200 "
            "partitions",
            "                 rule:     the partition size of a tile is at most 128",
            "                 received: tensor 3 [[]200, 1[]] float32 in sbuf: 200 partitions",
            "                 limit:    128 partitions (trn2, nl.tile_size.pmax)",
            "                 where:    kernel.py:10: left = nl.ndarray(a.shape, dtype=a.dtype, *",
            "                 remedy:   loop over the first dimension in tiles of at most 128, and "
            "put the rest into the free dimension",
            "  run again:   pytest --simulate test_add.py::test_add --case '{*}'",
            "=* kernels against their references =*",
            "kernel  cases",
            "add         1",
            "=* short test summary info =*",
            "FAILED test_add.py::test_add[[]m=200-n=1-float32[]] - add: LimitError at m=200, n=1, "
            "float32: a tile has 200 partitions",
            "=* 1 failed in *",
        ],
        consecutive=True,
    )


def test_the_whole_text_of_refusals_that_do_not_come(project):
    """A case cannot express these calls: the line that runs a call again names its test."""
    refusals = (f'Rejection({{"m": {m}, "n": 2}}, match="small")' for m in (1, 2))
    project.add_test(more=f"rejects=[{', '.join(refusals)}],")
    result = project.run(
        "--simulate", "--hypothesis-seed=1", "--difftest-report=r.json"
    )
    again = "pytest --simulate 'test_add.py::test_add[[]rejects-m=1-n=2[]]'"
    result.stdout.fnmatch_lines(
        [
            "_* test_add[[]rejects-m=1-n=2[]] _*",
            "add must reject m=1, n=2",
            "  accepted:    an error of the kernel's contract whose text matches 'small'",
            "  embedded:    accepted it",
            "  also wrong:  1 other case (a call to reject)",
            f"  run again:   {again}",
            "=* kernels against their references =*",
        ],
        consecutive=True,
    )
    tests = json.loads((project.pytester.path / "r.json").read_text())["tests"]
    assert [test.get("same_as") for test in tests] == [None, None, tests[1]["id"]]
    one = project.run("--simulate", tests[1]["id"])
    one.assert_outcomes(failed=1)


def test_a_terminal_of_few_characters_has_a_line_for_each(project, monkeypatch):
    """pytest writes characters that it lacks as escapes, and so a line break in that text."""
    path = project.pytester.path / "kernel.py"
    text = path.read_text("utf-8").replace("def subtract", "def größer")
    path.write_text(
        text.replace("Wrong where it is", '"""; assert a is None, "größer"; """'),
        "utf-8",
    )
    project.add_test("größer")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = project.run_apart("--simulate", "--hypothesis-seed=1")
    assert "\\n" not in result.stdout.str()
    lines = [
        "  embedded: *: gr\\xf6\\xdfer",
        "  run again: *",
        "=*",
        "kernel *",
        "gr\\xf6\\xdfer *",
        "=*",
    ]
    result.stdout.fnmatch_lines(lines, consecutive=True)


def test_the_whole_text_of_an_assertion_of_the_tests_own(project):
    """Hypothesis's own words are left out, and so is a group of errors next to a wrong kernel."""
    project.add_test("subtract")
    wrong = project.pytester.path / "test_wrong.py"
    path = project.pytester.path / "test_add.py"
    own = "    from hypothesis import note\n    note('as noted')\n    assert case.values['n'] < 3\n"
    wrong.write_text(
        path.read_text().replace("    case.check()", f"{own}    case.check()")
    )
    path.write_text(wrong.read_text().replace("subtract", "add"))
    result = project.run("--simulate", "--hypothesis-seed=1", *FILES)
    asserted = [
        ">       assert case.values['n'] < 3",
        "E       assert 3 < 3",
        "E       as noted",
        "E       run again: pytest --simulate test_add.py::test_add --case '{*\"n\":3}*}'",
        "",
        "test_add.py:*: AssertionError",
    ]
    result.stdout.fnmatch_lines(asserted, consecutive=True)
    again = "  run again:   pytest --simulate test_wrong.py::test_add --case '{*\"n\":%s}*}'"
    two = [
        again % 1,
        "",
        "test_wrong.py:*: AssertionError: assert 3 < 3",
        again % 3,
        "_*",
    ]
    result.stdout.fnmatch_lines(two, consecutive=True)
    result.stdout.fnmatch_lines(
        ["FAILED test_wrong.py::test_add - *: out[[]0, 0[]] (and 1 more)"]
    )
    told = (project.pytester.path / "r.md").read_text()
    assert (
        "\n~~~~\ntest_wrong.py:18: AssertionError: assert 3 < 3\n  run again: " in told
    )


def test_pytest_fail_is_reported_like_an_assertion(project):
    project.add_test()
    failing = "    import pytest\n    if case.values['n'] == 1: pytest.fail('one')\n"
    failing += "    assert case.values['n'] < 3\n"
    path = project.pytester.path / "test_add.py"
    path.write_text(
        path.read_text().replace("    case.check()", f"{failing}    case.check()")
    )
    again = "*run again: * --case '{*\"n\":%s}*}'"
    lines = ["*Failed: one", again % 1, "*test_add.py:*: AssertionError: assert 3 < 3"]
    result = project.run("--simulate", "--hypothesis-seed=1")
    result.stdout.fnmatch_lines(
        [*lines, again.replace(": ", ":   ") % 3, ""], consecutive=True
    )


def test_the_whole_text_of_a_spec_that_decides_nothing(project):
    """The reason of most cases, and the remedy; the counts of the table agree."""
    far = KERNEL.replace("nisa.tensor_tensor(left, right, op=nl.add)", FAR)
    beyond = REFERENCE.replace("return a", "return 9e76 * a").replace(
        "+ b", "+ 9e76 * b"
    )
    project.pytester.makepyfile(kernel=far, reference_add=beyond)
    project.add_test()
    result = project.run("--simulate", "--hypothesis-seed=1", "-W", "ignore")
    result.stdout.fnmatch_lines(
        [
            "_* test_add _*",
            "the test of add proves too little on embedded: * of * compared cases are inconclusive",
            "  most:   add: the reference is finite nowhere, and NaN against NaN proves nothing; "
            "the data do it: the inputs are finite, and the reference is beyond *; give the inputs "
            "data= whose results it holds",
            "  remedy: give inputs data= whose results are finite and fit their dtype "
            "(docs/how-to/choose-inputs.md); allow_inconclusive=True of the spec accepts it",
            "=* kernels against their references =*",
            "kernel * inconclusive",
            "add *",
            "inconclusive: * of add: the reference is finite nowhere, and NaN against NaN proves "
            "nothing; give the inputs data= whose results it holds",
            "=* short test summary info =*",
            "FAILED test_add.py::test_add - the test of add proves too little *",
            "=* 1 failed in *",
        ],
        consecutive=True,
    )


def test_the_whole_text_of_a_clean_check():
    kernel = "kernels.nki.transpose:matrix_transpose"
    result = CliRunner().invoke(main, ["check", kernel, "--shape", "128,128"])
    assert result.output == (
        "matrix_transpose on trn2: instructions: 4, findings: 0, allowed by comments: 0\n"
    )


def test_with_tb_line_the_terminal_has_the_message_and_a_file_the_report(project):
    project.add_test("subtract")
    result = project.run("--simulate", "--tb=line", "--difftest-report=report.json")
    text = result.stdout.str()
    result.stdout.fnmatch_lines(
        ["*test_add.py:*: subtract: wrong algorithm at m=1, n=1, *"]
    )
    assert "first wrong" not in text
    assert "run again" not in text
    assert "first wrong" in (project.pytester.path / "report.json").read_text()

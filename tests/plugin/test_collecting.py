import sys
import textwrap

import pytest

from tests.plugin.conftest import MORE

NOT_COLLECTED = (
    "1 module of kernel tests was not collected, because no backend was requested: "
    "run with --simulate (a simulator) or --device (a NeuronCore)"
)


def test_the_other_tests_of_a_module_are_collected_without_a_backend(project):
    project.add_test()
    file = project.pytester.path / "test_add.py"
    file.write_text(
        file.read_text()
        + "\n\ndef test_reference():\n    assert reference is not None\n"
        + "\n\nclass TestMore:\n    def test_more(self): ...\n"
    )
    before = "neuronxcc" in sys.modules  # of this session, if it requested a simulator
    (file.parent / "one").mkdir()
    (file.parent / "one" / "test_one.py").write_text(file.read_text())
    result = project.run("one")  # pytest asks for the files of the folder above, too
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*kernels against their references*", NOT_COLLECTED])
    assert ("neuronxcc" in sys.modules) == before
    project.run("--simulate", "one").assert_outcomes(passed=3)


def test_with_nothing_else_no_test_is_collected(project):
    """Nor is a module of kernel tests imported."""
    project.pytester.makepyfile(
        test_add="from difftest import kernel_test\nraise RuntimeError('imported')"
    )
    result = project.run("--doctest-modules", "test_add.py")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        ["*kernels against their references*", NOT_COLLECTED, "*no tests ran*"]
    )
    result = project.run("test_add.py::test_add")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([NOT_COLLECTED])


def test_a_session_without_kernel_tests_says_nothing_of_kernels(project):
    project.pytester.makepyfile(test_other="def test_other(): ...")
    result = project.run("--hypothesis-profile=nightly")  # known without a backend
    result.assert_outcomes(passed=1)
    assert "kernels against" not in result.stdout.str()
    assert "difftest:" not in result.stdout.str()


def test_the_plugin_is_light(project):
    """A session that asks for no backend pays to its end for neither NumPy nor a simulator."""
    project.pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            heavy = {"numpy", "rich", "difftest.simulator", "neuronxcc"}
            print("HEAVY", sorted(heavy & set(sys.modules)))
        """
    )
    project.pytester.makepyfile(test_other="def test_other(): ...")
    project.add_test()
    result = project.pytester.runpytest_subprocess("-p", "no:benchmark")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 module of kernel tests *", "HEAVY [[]]"])


def test_the_embedded_modules_are_there_for_conftests_and_gone_after_the_run(project):
    before = sys.modules.get("neuronxcc")
    project.add_test()
    project.pytester.makeconftest("import neuronxcc.nki.language")
    project.run("--simulate").assert_outcomes(passed=1)
    assert sys.modules.get("neuronxcc") is before
    assert (
        project.run("--simulate", "--no-such-option").ret == pytest.ExitCode.USAGE_ERROR
    )
    assert sys.modules.get("neuronxcc") is before


def test_examples_and_rejections_are_tests_of_their_own(project):
    project.add_test(more=MORE, edges=True)
    names = [
        "m=128-n=2048-float32",
        "m=128-n=2048-float16",
        "rejects-m=129-n=2",
        "edges",
    ]
    result = project.run("--simulate", "-v")
    result.assert_outcomes(passed=5)
    lines = ["", *(f"[[]{name}[]]" for name in names)]
    result.stdout.fnmatch_lines(
        [f"test_add.py::test_add{line} PASSED*" for line in lines]
    )
    result = project.run("--simulate", f"test_add.py::test_add[{names[2]}]")
    result.assert_outcomes(passed=1)


def test_marks_and_parametrization_hold_for_them_too(project):
    project.pytester.makepyfile(
        test_marked=textwrap.dedent(
            """
            import pytest
            from difftest import Rejection, kernel_test
            from kernel import add
            from reference_add import add as reference

            @pytest.fixture(params=["x", "y"], scope="session")
            def letter(request):
                return request.param

            @pytest.mark.slow
            @pytest.mark.parametrize("number", [1, 2])
            @kernel_test(
                kernel=add,
                reference=reference,
                domain={"n": (1, 2)},
                inputs={"a": "n 2", "b": "n 2"},
                examples=[{"n": 3}],
                rejects=[Rejection({"n": 129}, match="partition")],
            )
            def test_add(letter, case, number, tmp_path_factory):
                assert letter in "xy" and number in (1, 2) and tmp_path_factory.getbasetemp()
                case.check()
            """
        )
    )
    markers = ["-o", "markers=slow"]
    # a refusal, edges
    project.run("--simulate", *markers, "-m", "slow").assert_outcomes(passed=10)
    project.run("--simulate", *markers, "-m", "not slow").assert_outcomes(deselected=10)
    path = project.pytester.path / "test_marked.py"
    path.write_text(
        path.read_text().replace("import add\n", "import subtract as add\n", 1)
    )
    result = project.run("--simulate", *markers)
    result.assert_outcomes(failed=9, passed=1)
    result.stdout.fnmatch_lines(["  also wrong:  * other cases (drawn, float32*"])


def test_a_test_or_a_spec_that_cannot_be_is_an_error_with_its_text(project):
    """The options of its own module only."""
    project.add_test()
    project.add_test(name="test_method")
    with open(project.pytester.path / "test_method.py", "a", encoding="utf-8") as file:
        file.write(
            """
class TestAll:
    @kernel_test(kernel=add, reference=reference, domain={"n": [1]}, inputs={"a": "n", "b": "n"})
    def test_method(self, case):
        case.check()
"""
        )
    project.add_test(name="test_contradicts", more='parameters=("K",),')
    project.add_test(name="test_sizes", more="examples=sizes(9, 1),")
    result = project.run("--simulate", "--continue-on-collection-errors")
    result.assert_outcomes(passed=1, errors=3)
    result.stdout.fnmatch_lines(
        ["E  * difftest.SpecError: parameters: received the name 'K'; a*"]
    )
    result.stdout.fnmatch_lines(
        ["E  * sizes: received low=9, high=1; accepted: low <= high"]
    )
    for ours in ("*spec.py*", "*strategies.py*"):
        result.stdout.no_fnmatch_line(ours)
    result.stdout.fnmatch_lines(
        [
            "*SpecError: kernel_test: received TestAll.test_method(self, case), a method; "
            "accepted: a function outside classes, def test(case)"
        ]
    )

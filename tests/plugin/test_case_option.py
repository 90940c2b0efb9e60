import json

import pytest

CASE = {
    "values": {"m": 3, "n": 2},
    "dtype": "float16",
    "data": {"a": "iota", "b": {"random": {"seed": 5, "spread": 1}}},
}


def test_exactly_the_case_runs_and_nothing_else(project):
    project.add_test(more='examples=[{"m": 2, "n": 2}],')
    project.pytester.makepyfile(test_other="def test_other(): ...")
    result = project.run("--simulate", "--case", json.dumps(CASE))
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["add         1         6*"])


def test_a_case_that_is_no_json_is_a_usage_error(project):
    project.add_test()
    result = project.run("--simulate", "--case", "{")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --case: received '{', which is not JSON: *"])


def test_the_case_needs_one_kernel_test(project):
    project.add_test()
    project.add_test(name="test_second")
    result = project.run("--simulate", "--case", json.dumps(CASE))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --case: 2 kernel tests are selected; accepted: one, named as PATH::TEST"
        ]
    )
    result = project.run(
        "--simulate", "test_second.py::test_add", f"--case={json.dumps(CASE)}"
    )
    result.assert_outcomes(passed=1)


def test_the_case_needs_a_backend(project):
    project.add_test()
    result = project.run("--case", json.dumps(CASE))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --case needs a backend: add --simulate or --device"]
    )


def test_a_parametrized_test_runs_the_case_with_each_parameter(project):
    project.pytester.makepyfile(
        test_add="""
        import pytest
        from difftest import kernel_test
        from kernel import add
        from reference_add import add as reference

        @pytest.mark.parametrize("number", [1, 2])
        @kernel_test(
            kernel=add,
            reference=reference,
            domain={"m": (1,), "n": (1,)},
            inputs={"a": "m n", "b": "m n"},
            dtypes=("float16",),
        )
        def test_add(case, number, tmp_path):
            assert tmp_path.is_dir()
            case.check()
        """
    )
    project.run("--simulate", "--case", json.dumps(CASE)).assert_outcomes(passed=2)


def test_the_case_runs_in_this_process_with_any_number_of_workers(project):
    project.add_test()
    words = ["--simulate", "-n", "2", "--case"]
    result = project.run(*words, json.dumps(CASE), "--", "test_add.py")
    result.assert_outcomes(passed=1)
    assert "created: " not in result.stdout.str()
    result = project.run(*words, json.dumps({**CASE, "dtype": "int8"}), "test_add.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --case: dtype: received 'int8'; accepted*"])

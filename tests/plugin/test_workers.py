"""The plugin under pytest-xdist."""

from tests.plugin.test_running import MORE, counts


def test_workers_give_the_verdicts_and_counts_of_one_process(project):
    project.add_test(more=MORE)
    project.add_test("subtract", name="test_wrong")
    arguments = ("--simulate", "--hypothesis-seed=3", "-o", "addopts=", "-p", "no:cacheprovider")
    alone = project.run_apart(*arguments)
    spread = project.run_apart(*arguments, "-n", "2")
    alone.assert_outcomes(passed=4, failed=1)
    spread.assert_outcomes(passed=4, failed=1)
    assert counts(spread) == counts(alone)
    assert list(counts(spread)) == ["add", "subtract"]
    spread.stdout.fnmatch_lines(["*run again:   pytest --simulate test_wrong.py::test_add --case*"])


def test_modules_that_workers_do_not_collect_are_counted_once(project):
    project.add_test()
    project.pytester.makepyfile(test_other="def test_other(): ...")
    result = project.run("-n", "2")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 module of kernel tests was not collected, *"])


def test_a_usage_error_comes_before_any_worker_starts(project):
    project.add_test()
    result = project.run("--device", "-n", "2")
    result.stderr.fnmatch_lines(["ERROR: a Neuron device cannot be used here."])
    assert "gw0" not in result.stdout.str()


def test_each_worker_has_one_blas_thread_for_references_too(project):
    """Workers fill the cores; in one process a reference has them all."""
    code = """
        import numpy
        from threadpoolctl import threadpool_info

        def test_threads():
            counts = {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}
            assert counts == {%d}
    """
    conftest = "import numpy, threadpoolctl; threadpoolctl.threadpool_limits(2, 'blas')"
    project.pytester.makeconftest(conftest)
    for expected, *options in ((1, "--simulate", "-n", "2"), (2, "--simulate"), (2, "-n", "2")):
        project.pytester.makepyfile(test_threads=code % expected)
        project.run_apart(*options).assert_outcomes(passed=1)

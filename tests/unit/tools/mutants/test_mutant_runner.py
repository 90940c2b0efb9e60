from collections import Counter
from dataclasses import replace

import pytest

from difftest.tools.mutants import mutant_runner as judging
from difftest.tools.mutants.campaign import (
    FILE,
    BaselineError,
    Campaign,
    CampaignLimits,
    ResultCache,
    WorkerSetup,
    run_in_processes,
)
from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.mutant import Mutant, qualified_name, read_source
from difftest.tools.mutants.mutant_runner import MutantRunner
from difftest.tools.mutants.suite import drawn_cases, lines_run, suites_of
from tests.unit.tools.mutants import sample

CASES = 3


@pytest.fixture(scope="module")
def judged():
    """Each mutant of the sample by its operator and changed line, and what became of it."""
    (suite,) = suites_of(
        {"scaled": sample.SPEC}, {"scaled": drawn_cases(sample.SPEC, CASES)}
    ).values()
    judge = MutantRunner({suite.name: suite})
    tests = [(suite.name, test) for test in suite.tests]
    return {
        (one.operator, one.diff()[-1][1:].strip()): judge.judge(one, tests)
        for one in mutants_of(suite.functions)
    }


def test_the_result_names_the_suite_that_found_a_mutant(judged):
    scale = "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.{}, operand0={})"
    for operator, line, by in (
        ("another operation", scale.format("add", "2.0"), "comparison: value"),
        ("instruction left out", "pass", "rejection: UnwrittenError"),
        ("check removed", "pass", "edge or refusal"),
        (
            "comparison at its boundary",
            "assert rows < 128, " + CHECK,
            "check: AssertionError",
        ),
        ("dtype hard-coded", OUT.format("x", "nl.float32"), "comparison: dtype"),
    ):
        death = judged[operator, line].death
        assert death is not None, (operator, line)
        assert death.by == by, (operator, line)
        assert bool(death.case) == death.test.startswith(("case", "example")), death


def test_calls_beside_the_domain_are_a_test():
    (suite,) = suites_of({"scaled": sample.EDGES}, {"scaled": []}).values()
    assert list(suite.tests)[-1] == "edges"
    assert suite.run("edges") is None
    other = next(
        one
        for one in mutants_of(suite.functions)
        if one.operator == "another operation"
    )
    result = MutantRunner({suite.name: suite}).judge(other, [("scaled", "edges")])
    assert result.death.by == "edge or refusal"


CHECK = 'f"at most 128 rows: got {rows}"'
OUT = "out = nl.ndarray((rows, columns), dtype={1}, buffer=nl.shared_hbm)"


def test_a_surviving_mutant_has_a_reason(judged):
    (never,) = (
        one for (name, _), one in judged.items() if name == "condition turned round"
    )
    assert never.status == judging.SAME_BITS
    assert "the same bits in all" in never.why
    boundary = judged["comparison at its boundary", "if columns >= 1000:"]
    assert boundary.status == judging.EQUIVALENT
    assert boundary.why.startswith("the same instructions and the same bits in all ")


def test_a_mutant_that_no_test_runs_is_not_covered():
    (suite,) = suites_of({"scaled": sample.SPEC}, {"scaled": []}).values()
    mutant = next(iter(mutants_of(suite.functions)))
    assert (
        MutantRunner({suite.name: suite}).judge(mutant, []).status
        == judging.NOT_COVERED
    )


def campaign_of(tmp_path, specs=None, cases=CASES, **settings):
    made = Campaign(
        specs or sample.SPECS,
        CampaignLimits(cases, 0, **settings),
        ResultCache(tmp_path),
    )
    judged = []
    made.run(sample.collect, lambda mutant, result: judged.append(mutant))
    made.cache.close()
    return made, len(judged)


def test_a_killed_campaign_continues_where_it_ended(tmp_path):
    first, count = campaign_of(tmp_path)
    assert count == len(first.mutants) == len(first.results)
    file = tmp_path / FILE
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-2]) + lines[-2][:30])
    again, _ = campaign_of(tmp_path)
    assert again.kept == count - 2
    assert {m: r.status for m, r in again.results.items()} == {
        m: r.status for m, r in first.results.items()
    }


def test_a_changed_spec_is_judged_again_with_the_killing_suite_first(tmp_path):
    first, _ = campaign_of(tmp_path)
    other, _ = campaign_of(tmp_path, cases=CASES + 2)
    assert other.kept == 0
    ran = Counter(one.ran for one in other.results.values() if one.death)
    assert ran[1] > Counter(one.ran for one in first.results.values() if one.death)[1]


def test_a_budget_leaves_the_rest(tmp_path):
    made, count = campaign_of(tmp_path, budget=0.0)
    assert count < len(made.mutants)


def test_references_of_kernels_that_are_done_are_let_go(tmp_path):
    one, other = (
        list(
            suites_of(
                {"one": sample.SPEC}, {"one": drawn_cases(sample.SPEC, CASES)}
            ).values()
        )
        * 2
    )
    other = replace(other, name="other", _references={})
    judge = MutantRunner({"one": one, "other": other})
    mutant = next(iter(mutants_of(one.functions)))
    for suite, done in ((one, other), (other, one)):
        judge.judge(mutant, [(suite.name, "case 0")])
        assert (len(suite._references), len(done._references)) == (1, 0)
    made, _ = campaign_of(tmp_path)
    baseline = Campaign(made.specs, made.settings, made.cache)
    baseline._baseline(set(baseline.suites))
    assert [len(suite._references) for suite in baseline.suites.values()] == [0]


def test_an_example_that_fails_anyway_finds_nothing():
    wrong = replace(sample.SPEC, reference=lambda x: x + 1.0)
    (suite,) = suites_of({"wrong": wrong}, {"wrong": []}).values()
    other = next(
        one
        for one in mutants_of(suite.functions)
        if one.operator == "another operation"
    )
    result = MutantRunner({"wrong": suite}).judge(other, [("wrong", "example 0")])
    assert result.status == judging.SURVIVED
    assert result.why.startswith("wrong, example 0, fails without a planted bug: ")


def test_a_weak_spec_lets_mutants_live(tmp_path):
    made, _ = campaign_of(tmp_path, {"weak": sample.WEAK})
    alive = {
        mutant.operator: one.why
        for mutant, one in made.results.items()
        if one.status == judging.SURVIVED
    }
    assert (
        alive["check removed"]
        == "no refusal and no call at the edge needs the whole check"
    )


def test_mutants_of_a_classic_kernel_are_found(tmp_path):
    made, _ = campaign_of(tmp_path, {"twice": sample.CLASSIC}, cases=20)
    found = {mutant.operator for mutant, one in made.results.items() if one.death}
    assert {"last tile missing", "another operation", "instruction left out"} <= found


def test_another_rounding_is_distinguished_from_an_error_within_the_bound():
    (suite,) = suites_of(
        {"loose": sample.LOOSE}, {"loose": drawn_cases(sample.LOOSE, 8)}
    ).values()
    (function, *_) = suite.functions
    file = function.__code__.co_filename
    source = read_source(file)
    results = {}
    for old, new in (
        # and the first once more: wrong
        (
            "0:1], data2=tile[:, 1:2]",
            "1:2], data2=tile[:, 2:3]",
        ),
        ("operand0=1.0", "operand0=1.000001"),
        (SUM, SUM.replace("0:1", "9").replace("2:3", "0:1").replace("9", "2:3")),
    ):
        start = source.text.rindex(old)
        change = source.edit(start, start + len(old), new)
        mutant = Mutant(file, qualified_name(function), "by hand", change)
        tests = [("loose", one) for one in suite.tests]
        results[new] = MutantRunner({"loose": suite}).judge(mutant, tests)
    wrong, farther, turned = results.values()
    assert wrong.death.by == "comparison: value"
    assert (farther.status, turned.status) == (judging.SURVIVED, judging.ROUNDED)
    assert turned.why.startswith("as near to the reference in all ")


SUM = """0:1], data2=tile[:, 1:2], op=nl.add)
    nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 2:3]"""


def test_lines_that_run_are_seen():
    (suite,) = suites_of(
        {"scaled": sample.SPEC}, {"scaled": drawn_cases(sample.SPEC, 1)}
    ).values()
    (function, *_) = suite.functions
    with lines_run(suite.functions) as seen:
        suite.run("case 0")
    first = function.__code__.co_firstlineno
    source = read_source(function.__code__.co_filename).text.splitlines()
    lines = [source[line - 1].strip() for _, line in sorted(seen) if line > first]
    assert "if columns > 1000:" in lines
    assert lines.count("tile = loaded(x)") == 1
    assert "nisa.dma_copy(dst=tile, src=x)" in lines
    assert 'return x.astype("float64") * 2' not in lines


def test_a_kernel_that_fails_has_no_mutants(tmp_path):
    wrong = {"wrong": sample.WRONG}
    with pytest.raises(
        BaselineError, match="wrong fails without a planted bug: case 0: "
    ):
        campaign_of(tmp_path, wrong)


def test_a_mutant_that_loops_is_stopped_and_the_others_go_on():
    """In a process of its own; ``while`` never ends where its step is taken away."""
    (suite,) = suites_of(
        {"endless": sample.ENDLESS}, {"endless": drawn_cases(sample.ENDLESS, 2)}
    ).values()
    cases = {"endless": [case.to_json() for case in suite.drawn]}
    mutants = [
        one
        for one in mutants_of(suite.functions)
        if one.diff()[-1].split() in (["+", "turn", "=", "1"], ["+", "turn", "+=", "2"])
    ]
    orders = WorkerSetup(sample.collect_endless, cases, None)
    tasks = [(one, [("endless", "case 0")]) for one in mutants]
    results = {
        one.operator: result
        for one, result in run_in_processes(tasks, 1, orders, lambda test: 1.0)
    }
    assert results["total overwritten"].status == judging.TIMEOUT
    assert results["total overwritten"].death.message == "ran for more than 1 s"
    assert results["constant off by one"].death.by == "comparison: value"


def test_lines_that_no_drawn_case_runs_have_all_examples_of_each_test(tmp_path):
    """Else each belongs to one of the tests that share a kernel, and may be missing there."""
    wide = replace(
        sample.SPEC, examples=tuple({"M": 1, "N": columns} for columns in (2000, 2001))
    )
    made = Campaign(
        {"one": wide, "two": replace(wide)},
        CampaignLimits(CASES, 0),
        ResultCache(tmp_path),
    )
    lines = {(mutant.file, line) for mutant in made.mutants for line in mutant.lines}
    for drawn, count in ((True, 4), (False, 8)):  # two examples in two dtypes
        made._covers.clear()
        made._covers |= {("two", "case 0"): lines} if drawn else {}
        tests = made._tests_of(made.mutants[0])
        assert sum(test.startswith("example") for _, test in tests) == count
    made.cache.close()

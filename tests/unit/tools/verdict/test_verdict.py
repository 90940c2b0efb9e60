"""The whole way: a kernel in a worker, judged by a spec, as one object."""

import dataclasses
import json

import numpy as np

from difftest import KernelSpec, Rejection, sizes
from difftest.tools.verdict.fork_server import Limits, Sandbox
from difftest.tools.verdict.judge import Judge
from difftest.tools.verdict.outcome import Outcome, Stage
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, WRONG, judged, source, spec_of


def test_a_right_kernel_agrees(worker, tmp_path):
    judgement = judged(worker, tmp_path, RIGHT)
    assert judgement.outcome is Outcome.AGREES, judgement.report
    assert judgement.stage is Stage.TIME
    assert judgement.outcome.exit_code == 0
    assert judgement.evidence.cases >= judgement.evidence.decided >= 3
    assert judgement.time["predicted_us"] > 0


def test_a_partial_has_the_dialect_of_its_function(worker, tmp_path):
    head, _, body = RIGHT.partition("@nki.jit\ndef add(a, b)")
    text = f"{head}\nfrom functools import partial\n\n\n@nki.jit\ndef joined(op, a, b){body}"
    judgement = judged(worker, tmp_path, f"{text}\n\nadd = partial(joined, nl.add)\n")
    assert judgement.outcome is Outcome.AGREES, judgement.report


@every(
    "names, outcome",
    [("{'a', 'b'}", Outcome.INCONCLUSIVE), ("sorted({'a', 'b'})", Outcome.AGREES)],
)
def test_a_kernel_that_follows_the_order_of_a_set_is_unusual_and_no_cheat(
    worker, tmp_path, names, outcome
):
    body = (
        f"first, second = {names}\ntensors = {{'a': a, 'b': b}}\n"
        "return store(total(tensors[first], tensors[second]))"
    )
    judgement = judged(worker, tmp_path, source(body), 3)
    assert judgement.outcome is outcome, judgement.report
    assert ("Sort the set" in judgement.reason) == (outcome is Outcome.INCONCLUSIVE)


def test_zeros_alone_decide_nothing(worker, tmp_path):
    def spec(kernel):
        return dataclasses.replace(spec_of(kernel), reference=lambda a, b: 0.0 * a)

    judgement = judged(
        worker, tmp_path, source("return store(total(a, a, nl.subtract))"), 3, spec
    )
    assert judgement.outcome is Outcome.WEAK_SPEC, judgement.report
    assert judgement.evidence.cases == 3
    assert "all are zeros" in judgement.reason


def spec_that_excludes(kernel):
    rejects = (
        Rejection({"p": 4, "n": 9}, "at most 8"),
        Rejection({"p": 4, "n": 11}, "at most 8"),
    )
    return dataclasses.replace(spec_of(kernel), rejects=rejects)


@every(
    "line, outcome, said",
    [
        ("assert a.shape[1] <= 8, 'too wide'", Outcome.AGREES, ""),
        ("assert a.shape[1] <= 10, 'too wide'", Outcome.NOT_REFUSED, "n=9"),
        ("a.shape[1] > 8 and a.shape[9]", Outcome.NOT_REFUSED, "IndexError"),
    ],
)
def test_what_the_contract_excludes_is_refused_in_words_of_its_own(
    fork_server, tmp_path, line, outcome, said
):
    with Sandbox(Limits(30.0), fork_server) as worker:
        text = source(f"{line}\nreturn store(total(a, b))")
        judgement = judged(worker, tmp_path, text, 2, spec_that_excludes)
    assert judgement.outcome is outcome, judgement.report
    assert said in judgement.report
    assert judgement.case is None


def test_a_wrong_kernel_has_its_smallest_case(worker, tmp_path):
    judgement = judged(worker, tmp_path, WRONG)
    assert judgement.outcome is Outcome.WRONG_ALGORITHM
    assert judgement.outcome.exit_code == 1
    assert "  written by:  " in judgement.report
    document = judgement.as_mapping()
    assert document["case"]["values"] == {"p": 1, "n": 1}
    assert document["first_wrong"]["index"] == [0, 0]


CARRIED = """
from neuronxcc import nki
import neuronxcc.nki.language as nl


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for turn in nl.affine_range(2):
        nl.store(out, nl.load(a) + nl.load(b))  # difftest: allow[affine-written-twice]
    return out
"""


def test_the_case_of_a_verdict_is_minimal(worker, tmp_path):
    """The failure is not monotone: Hypothesis alone ends above."""
    op = "op = nl.subtract if a.shape[0] % 7 == 5 and a.shape[0] > 20 else nl.add"
    text = source(f"{op}\nreturn store(total(a, b, op))")
    judgement = judged(worker, tmp_path, text, 20)
    case = json.loads(judgement.case)
    assert case["values"] == {"p": 26, "n": 1}
    assert case["data"] == {"a": "zeros", "b": "ones"}
    assert "minimal:     no case with smaller p or n fails" in judgement.report


def test_a_comment_of_the_kernels_author_silences_no_hazard(worker, tmp_path):
    judgement = judged(worker, tmp_path, CARRIED)
    assert judgement.outcome is Outcome.HAZARD, judgement.as_mapping()
    assert judgement.outcome.exit_code == 4
    assert [one["source"] for one in judgement.findings] == ["hazards"]


BRANCH = source("if a.shape[0] > 200:\n    return a\nreturn store(total(a, b))")


def test_a_branch_that_no_case_took_is_named(worker, tmp_path):
    judgement = judged(worker, tmp_path, BRANCH)
    assert judgement.outcome is Outcome.AGREES, judgement.report
    (missed,) = judgement.as_mapping()["coverage"]["missed"]
    assert missed["what"] == "never true"
    assert missed["source"] == "if a.shape[0] > 200:"


ARMS = """odd = a.shape == (77, 5) and nl.subtract or nl.add
op = (odd, nl.subtract)[a.shape == (77, 5)]
ops = [nl.subtract for _ in range(1) if a.shape == (77, 5)] + [op]
op, axis = (nl.subtract if a.shape == (77, 5) else ops[0]), (1 if a.shape[0] > 1 else 0)
match a.shape:
    case (77, 5):
        op = nl.subtract
    case _:
        assert a.shape != (77, 5) and axis < 2
return store(total(a, b, op))"""


def test_an_arm_of_an_expression_that_no_case_took_is_named(worker, tmp_path):
    judgement = judged(worker, tmp_path, source(ARMS))
    assert judgement.outcome is Outcome.AGREES, judgement.report
    missed = judgement.as_mapping()["coverage"]["missed"]
    lines = ARMS.splitlines()
    assert [one["source"] for one in missed] == [*lines[:4], lines[5].strip()]
    assert {one["what"] for one in missed} == {"never true"}


def test_what_decides_nothing_is_a_weak_spec(worker, tmp_path):
    def never(a, b):
        return np.full(a.shape, np.nan)

    def spec(kernel):
        return dataclasses.replace(spec_of(kernel), reference=never)

    nothing = "tile = total(a, b)\nnisa.memset(dst=tile, value=float('nan'))\nreturn store(tile)"
    judgement = judged(worker, tmp_path, source(nothing), 5, spec)
    assert judgement.outcome is Outcome.WEAK_SPEC, judgement.as_mapping()
    assert judgement.outcome.exit_code == 7


def test_a_reference_that_breaks_down_blames_no_kernel(worker, tmp_path):
    def spec(kernel):
        return dataclasses.replace(spec_of(kernel), reference=lambda a, b: a.nothing)

    judgement = judged(worker, tmp_path, RIGHT, 5, spec)
    assert judgement.outcome is Outcome.INCONCLUSIVE, judgement.as_mapping()
    assert "cannot be judged" in judgement.reason


EXAMPLE = source(
    "if a.shape[0] == 77:\n    return store(total(b, a))\nreturn store(total(a, b))"
)


def test_a_parameter_that_no_worker_has_is_named(worker, tmp_path):
    def spec(kernel):
        return KernelSpec(
            kernel=kernel,
            reference=lambda a, b, how: a + b,
            domain={"p": [1], "n": [2], "how": [sizes]},
            inputs={"a": "p n", "b": "p n"},
            parameters=["how"],
        )

    text = RIGHT.replace("def add(a, b)", "def add(a, b, how)")
    judgement = judged(worker, tmp_path, text, spec=spec)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "or an object of nl or np; got <function sizes" in judgement.reason


def test_a_branch_that_only_an_example_takes_is_named(worker, tmp_path):
    def spec(kernel):
        domain = {"p": sizes(1, 32), "n": sizes(1, 8)}
        examples = ({"p": 77, "n": 1},)
        return dataclasses.replace(spec_of(kernel), domain=domain, examples=examples)

    judgement = judged(worker, tmp_path, EXAMPLE, 5, spec)
    assert judgement.outcome is Outcome.AGREES, judgement.report
    (note,) = [one for one in judgement.notes if "only the examples" in one]
    assert note.endswith("if a.shape[0] == 77:")


def test_files_are_named_from_the_working_directory(worker, tmp_path, monkeypatch):
    """The output and the record of a verdict: its worker has a separate directory."""
    monkeypatch.chdir(tmp_path)
    kernels = {
        "a branch": "if a.shape[0] > 9999:\n    return store(a)\nreturn store(total(a, b))",
        "a crash": "return {}[a.shape[0]]",
        "a refusal": "return nl.load(a, foo=1)",
    }
    for what, body in kernels.items():
        judgement = judged(worker, tmp_path, source(body))
        text = json.dumps(judgement.as_mapping())
        assert str(tmp_path) in repr(vars(judgement)), what
        assert str(tmp_path) not in text, what
        assert "candidate_" in text, what


def test_some_sizes_are_near_both_ends(worker, tmp_path):
    wide = {"p": sizes(1, 128), "n": sizes(1, 512)}
    judgement = judged(
        worker,
        tmp_path,
        RIGHT,
        40,
        lambda kernel: dataclasses.replace(spec_of(kernel), domain=wide),
    )
    assert judgement.outcome is Outcome.AGREES
    spec = dataclasses.replace(spec_of(lambda a, b: None), domain=wide)
    judge = Judge(spec, worker, judgement, 40)
    chosen = [(end["p"], end["n"]) for end in judge._end_sizes()]
    assert {(1, 1), (128, 512)} <= set(chosen)
    assert len(set(chosen)) >= 5
    near = {*range(1, 5), *range(125, 129), *range(509, 513)}
    assert all(p in near and n in near for p, n in chosen)

"""Judging candidates of the convolution's ladder, against checking one in this process."""

import itertools
import resource
from collections import Counter
from dataclasses import replace

from benchmarks.ladder import candidates
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.examples import examples
from difftest.testing.harness.runner import Runner
from difftest.testing.host.collection import with_spec
from difftest.tools.verdict.batch import memoize_pickled
from difftest.tools.verdict.candidate import JudgeSettings, judge_candidate
from difftest.tools.verdict.fork_server import ForkServer
from difftest.tools.verdict.outcome import Outcome

TEST = "benchmarks/small_conv2d.py::test_conv2d"
COUNT = 48
CASES = 5
AIM = 1.0
"""Seconds of CPU for a candidate, its worker's included."""


def cpu():
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(one.ru_utime + one.ru_stime for one in used)


def test_a_candidate_takes_less_than_a_second(tmp_path, capsys):
    def measure(spec):
        spec = replace(spec, reference=memoize_pickled(spec.reference))
        began = cpu()
        runner = Runner((EmbeddedSimulator(),), record=True)
        for case in examples(cases(spec), CASES):
            runner.check(spec, case)
        checked = cpu() - began
        kernels = []
        for number, line in enumerate(itertools.islice(candidates(), COUNT)):
            (tmp_path / f"k{number}.py").write_text(line["source"])
            kernels.append(f"{tmp_path}/k{number}.py:{line['name']}")
        settings = JudgeSettings(cases=CASES, seed=1, shrink=False)
        began = cpu()
        with ForkServer() as nursery:
            outcomes = Counter(
                judge_candidate(kernel, TEST, settings, nursery, spec).outcome
                for kernel in kernels
            )
        return checked, (cpu() - began) / COUNT, outcomes

    checked, each, outcomes = with_spec(TEST, measure)
    with capsys.disabled():
        told = ", ".join(
            f"{count} {one.value}" for one, count in outcomes.most_common()
        )
        print(
            f"\n{COUNT} candidates, {told}: {each:.2f} s of CPU each, {each / checked:.1f} times"
        )
        print(f"the check of {CASES} cases of one rung in this process")
    assert len(outcomes) > 1
    assert outcomes[Outcome.AGREES] >= COUNT // 3
    assert each < AIM

"""`difftest verdict`: judge a kernel, or a batch of kernels, by one spec."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from difftest.simulator.dtypes import Array, is_float
from difftest.support.choices import install_hint
from difftest.testing.backends.base import Completed
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.examples import examples
from difftest.testing.drawing.explicit import explicit_cases
from difftest.testing.harness.judging import verdict_on
from difftest.testing.harness.kernel_calls import make_call, run_kernel
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from difftest.testing.host.collection import with_spec
from difftest.testing.host.options import OutputFile
from difftest.tools.verdict.batch import judge_batch
from difftest.tools.verdict.candidate import CASES, JudgeSettings, judge_candidate
from difftest.tools.verdict.fork_server import Limits
from difftest.tools.verdict.formats import (
    ANY,
    CLASSES,
    FORMS,
    exit_code,
    verdict_text,
    write_forms,
)
from difftest.tools.verdict.outcome import Outcome

FIRST_INPUT = "the first input"
LAST_INPUT = "the last input"


def constant_outputs(output: Array, inputs: tuple[Array, ...]) -> dict[str, Array]:
    """Return fake outputs by name, each with the shape and dtype of an output."""
    same = (
        [array for array in inputs if array.shape == output.shape]
        or inputs
        or (np.zeros(1),)
    )
    values = {
        "zeros": 0.0,
        "ones": 1.0,
        "NaN": np.nan,
        FIRST_INPUT: same[0],
        LAST_INPUT: same[-1],
        "the mean of an input": np.mean((*inputs, same[0])[0].astype(np.float64)),
    }
    wide = {
        name: np.resize(np.float64(value), output.shape)
        for name, value in values.items()
    }
    if not is_float(output.dtype):
        wide = {
            name: np.where(np.isfinite(value), value, 0) for name, value in wide.items()
        }
    return {name: value.astype(output.dtype) for name, value in wide.items()}


@dataclass
class Audit:
    """The result of an audit: how often fake outputs pass.

    Attributes
    ----------
    moves : whether the kernel only moves data, so that an input is a valid output.
    cases : number of cases that ran.
    decided : number of cases with an element that decides.
    passed : number of decided cases that pass, by the name of the fake outputs.
    reasons : why cases do not decide.
    """

    moves: bool = False
    cases: int = 0
    decided: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    reasons: set[str] = field(default_factory=set)

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """The reasons why the spec is weak; empty if it is not."""
        if not self.decided:
            why = "; ".join(sorted(self.reasons)) or "no case ran to a comparison"
            return (f"none of {self.cases} cases decides: {why}",)
        return tuple(
            f"{name} in the place of the kernel's outputs: all {count} cases that decide pass"
            for name, count in self.passed.items()
            if count == self.decided
            and not (self.moves and name in (FIRST_INPUT, LAST_INPUT))
        )

    def __str__(self) -> str:
        lines = [f"{self.cases} cases, {self.decided} of them decide"]
        lines += [
            f"  {count:4} of them pass with {name}"
            for name, count in self.passed.items()
        ]
        lines += [f"weak: {text}" for text in self.weaknesses] or [
            "no fake output passes all of them"
        ]
        return "\n".join(lines)


def audit_spec(spec: KernelSpec, count: int) -> Audit:
    """Judge fake outputs by a spec, on its examples and on drawn cases that are always the same."""
    audit = Audit(moves=spec.reduction == 0)
    runner = Runner((EmbeddedSimulator(),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in [*explicit_cases(spec), *examples(cases(spec), count)]:
            _audit_case(audit, runner, spec, case)
    return audit


def _audit_case(audit: Audit, runner: Runner, spec: KernelSpec, case: Case) -> None:
    """Add one case to an audit."""
    reference = runner.reference(spec, case)
    call = make_call(spec, case, exact=runner.settings_of(spec, case))
    outcome = run_kernel(runner.backends[0], call)
    if isinstance(reference, Exception) or not isinstance(outcome, Completed):
        audit.reasons.add("the kernel or the reference refuses cases")
        return
    audit.cases += 1
    verdict = verdict_on(reference, outcome)
    if not (isinstance(verdict, Match) and verdict.elements):
        audit.reasons.add(getattr(verdict, "reason", "") or "the kernel is wrong")
        return
    audit.decided += 1
    unwritten = tuple(None for _ in outcome.outputs)
    inputs = tuple(reference.inputs.values())
    fakes = [constant_outputs(output, inputs) for output in outcome.outputs]
    for name in fakes[0]:
        result = outcome._replace(
            outputs=tuple(fake[name] for fake in fakes), unwritten=unwritten
        )
        audit.passed[name] += isinstance(verdict_on(reference, result), Match)


def _check_files(
    files: Mapping[str, Path], batch: str | None, results: Path | None
) -> None:
    """Raise click.UsageError if the options for files do not fit each other."""
    if (batch is None) != (results is None):
        raise click.UsageError("--batch and --results go together")
    if "html" in files and (lack := install_hint("jinja2", "--html", "report")):
        raise click.UsageError(lack)
    if batch is not None and "json" in files:
        raise click.UsageError(
            "--json is for one kernel; --results has the objects of a batch"
        )


def _check_names(names: tuple[str, ...], *, has_kernel: bool) -> None:
    """Raise click.UsageError if the arguments are not a test, or a kernel and a test."""
    if len(names) == (2 if has_kernel else 1):
        return
    wanted = (
        "FILE.py:KERNEL and PATH::TEST"
        if has_kernel
        else "PATH::TEST with --batch or --audit"
    )
    raise click.UsageError(f"it takes {wanted}; got {' '.join(names) or 'nothing'}")


_FAIL_ON = f"Only these classes fail the command; repeatable: {', '.join(CLASSES)}."


@click.command()
@click.argument("names", nargs=-1, metavar="[FILE.py:KERNEL] PATH::TEST")
@click.option("--json", type=OutputFile(), help="Write the verdict as JSON.")
@click.option("--junit", type=OutputFile(), help="Write JUnit's XML.")
@click.option("--markdown", type=OutputFile(), help="Write Markdown.")
@click.option(
    "--html", type=OutputFile(), help="Write a page (needs the extra `report`)."
)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="CLASS",
    type=click.Choice(CLASSES),
    help=_FAIL_ON,
)
@click.option(
    "--cases",
    type=click.IntRange(1),
    default=CASES,
    show_default=True,
    help="Drawn cases.",
)
@click.option("--seed", type=int, help="Seed of the drawn cases. Default: random.")
@click.option("--audit", is_flag=True, help="Check whether fake outputs pass the test.")
@click.option(
    "--batch",
    metavar="DIR:KERNEL|FILE.jsonl",
    help="Judge many kernels; needs --results.",
)
@click.option(
    "--results",
    type=OutputFile(grows=True),
    help="File with a line for each kernel of a batch.",
)
@click.option(
    "-n", "processes", type=click.IntRange(1), default=os.cpu_count(), help="Processes."
)
@click.option(
    "--original",
    default="",
    metavar="FILE",
    help="File with the constants that the test reads.",
)
@click.option("--case", metavar="JSON", help="Judge only this case.")
@click.option(
    "--require-isolation", is_flag=True, help="Fail if isolation is incomplete."
)
@click.option(
    "--allow",
    multiple=True,
    metavar="MODULE",
    help="Module that the kernel may import.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=Limits().seconds,
    show_default=True,
    help="Seconds for the kernel's import, and for each run of it.",
)
@click.option(
    "--memory",
    type=click.IntRange(256),
    default=4096,
    show_default=True,
    help="MiB of address space for the kernel's process.",
)
@click.pass_context
def verdict(
    context: click.Context,
    /,
    names: tuple[str, ...],
    timeout: float,
    memory: int,
    audit: bool,
    **options: Any,
) -> None:
    """Judge an untrusted kernel by a kernel test.

    The kernel's Python runs in a separate process without access to the reference and the test
    data. The exit code is 0 if the kernel agrees; docs/reference/verdict.md lists the others.
    --batch judges many kernels by one test.
    """
    batch, results, processes = (
        options.pop(name) for name in ("batch", "results", "processes")
    )
    fail_on = options.pop("fail_on")
    files = {form: file for form in FORMS if (file := options.pop(form)) is not None}
    settings = JudgeSettings(
        limits=Limits(min(timeout, 1e6), memory * 2**20), **options
    )
    _check_files(files, batch, results)
    _check_names(names, has_kernel=batch is None and not audit)
    if audit:
        weighed = with_spec(names[0], lambda spec: audit_spec(spec, CASES))
        click.echo(f"{names[0]}: {weighed}")
        context.exit(
            (Outcome.WEAK_SPEC if weighed.weaknesses else Outcome.AGREES).exit_code
        )
    if batch is not None:
        documents = judge_batch(batch, names[0], settings, results, processes)
        write_forms(files, documents)
        context.exit(exit_code(documents, fail_on))
    judgement = judge_candidate(names[0], names[1], settings)
    document = judgement.as_mapping()
    click.echo(verdict_text(document))
    write_forms(files, [document], [judgement])
    context.exit(exit_code([document], fail_on or [ANY]))

"""Each rule's page: its wrong kernel breaks the rule at the marked lines, its right one none."""

from __future__ import annotations

import re
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difftest.simulator import MACHINES, RuleWarning, launch, launch_ranks
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.levels import LevelWarning
from difftest.tools.lint import trace_rules
from difftest.tools.lint.check import lint_source, lint_trace, rules
from difftest.tools.lint.rule import PAGES, SDKS, Release, Rule
from difftest.tools.lint.source import Source
from tests.every import every

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_WRONG = re.compile(r"# ruleid: (\w+)")
_RIGHT = re.compile(r"# ok: (\w+)")


def snippets(rule: Rule) -> list[str]:
    return _BLOCK.findall(rule.page)


def sdk_of(page: str, ids: set[str], source: Source) -> Release:
    """Return the SDK that the page names, or the newest of the dialect with all these rules."""
    fitting = [
        one for one in SDKS.values() if all(rules()[id].holds(one, None) for id in ids)
    ]
    named = re.search(r"For SDK (2\.\d+)", page)
    if named:
        return SDKS[named.group(1)]
    newest = [one for one in fitting if (one.level is None) == source.names.is_classic]
    return max(newest or fitting, key=lambda one: one.minor)


def launched(
    text: str, rule: Rule, tmp_path: Path, number: int = 0, quietly: bool = True
) -> Any:
    """Run a snippet's kernel on a machine that its rule is about."""
    file = tmp_path / f"{rule.id.lower()}_{number}.py"
    file.write_text(text)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with embedded():
        spec.loader.exec_module(module)
    machine = MACHINES[min(rule.targets, default="trn2")]
    grid = (2,) if "program_id" in text else ()
    arguments = [np.ones((128, 64), np.float32)]
    # about older levels, and about undocumented code that runs
    with warnings.catch_warnings():
        if quietly:
            warnings.simplefilter("ignore", LevelWarning)
            warnings.simplefilter("ignore", RuleWarning)
        if "nki.collectives" in text:
            kernel = module.kernel[2] if grid else module.kernel
            return launch_ranks(kernel, [arguments, arguments], machine=machine)[0]
        return launch(module.kernel, arguments, machine=machine, grid=grid)


@every("rule", [one for one in rules().values() if one.reads_traces])
def test_each_page_marks_the_findings_of_its_rule_in_a_trace(
    rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 250,000 take ten seconds
    monkeypatch.setattr(trace_rules, "MANY_INSTRUCTIONS", 250)
    for number, page in enumerate(snippets(rule)):
        text = page.replace("range(250_001)", "range(251)")
        sdk = sdk_of(rule.page, {rule.id}, Source(Path("kernel.py"), text))
        found = lint_trace(launched(text, rule, tmp_path, number).trace, sdk, {rule.id})
        lines = text.splitlines()
        marked = [
            at for at, line in enumerate(lines, 1) if rule.id in _WRONG.findall(line)
        ]
        assert [one.line for one in found] == marked
        assert bool(marked) is (number == 0)
    assert rule.id in _RIGHT.findall(snippets(rule)[1])


@every("rule", [one for one in rules().values() if not one.reads_traces])
def test_each_page_marks_the_findings_of_its_rule(rule: Rule) -> None:
    marked = 0
    for text in snippets(rule):
        source = Source(Path("kernel.py"), text)
        lines = text.splitlines()
        wrong = {
            at for at, line in enumerate(lines, 1) if rule.id in _WRONG.findall(line)
        }
        ids = {rule.id} | set(re.findall(r"ignore\[(\w+)\]", text))
        found = lint_source(source, sdk_of(rule.page, ids, source), None, ids)
        assert {one.line for one in found if one.id == rule.id} == wrong
        marked += len(wrong)
    assert marked, "no line is marked as wrong"
    assert any(rule.id in _RIGHT.findall(text) for text in snippets(rule)), (
        "none is marked right"
    )


def test_each_page_is_of_a_rule() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(rules())


@every("rule", rules().values())
def test_each_rules_page_has_its_fields(rule: Rule) -> None:
    assert re.fullmatch(r"NK[A-Z]\d{3}", rule.id)
    assert rule.page.startswith(f"# {rule.id}: {rule.title}\n\n- Rule: {rule.rule}\n")
    assert set(rule.words) >= {"Rule", "Remedy", "Known", "Sources"}
    assert set(rule.words) - {"Rule", "Remedy", "Known", "Sources"} <= {
        "Compiler",
        "Our simulator",
        "AWS's simulator",
    }
    assert all(rule.title and word.strip() for word in rule.words.values())
    assert rule.confidence


def test_two_rules_with_one_id_are_refused() -> None:
    from difftest.tools.lint.rule import Group
    from difftest.tools.lint.rule import rule as enter

    first = next(iter(rules()))
    with pytest.raises(ValueError, match=first):
        enter(first, group=Group.UPGRADE)(lambda node, place: ())


@every("rule", [one for one in rules().values() if not one.reads_traces])
def test_the_right_kernel_of_a_page_runs_on_the_simulator(
    rule: Rule, tmp_path: Path
) -> None:
    kernels = (
        text for text in snippets(rule) if "def kernel(x)" in text and "# ok:" in text
    )
    for number, text in enumerate(kernels):
        result = launched(text, rule, tmp_path, number)
        assert len(result.outputs) == 1


def test_the_page_of_aws_tables_names_rules_that_exist() -> None:
    page = Path(__file__).parents[4] / "docs/contributing/lint-aws-tables.md"
    named = set(re.findall(r"NK[A-Z]\d{3}", page.read_text(encoding="utf-8")))
    assert len(named) > 10
    assert named <= set(rules())


@every("rule", [one for one in rules().values() if not one.reads_traces])
def test_the_page_of_a_rule_is_right_about_the_simulator(
    rule: Rule, tmp_path: Path
) -> None:
    """The wrong kernel fails, runs with a warning, or runs, as the page states."""
    wrong = next(text for text in snippets(rule) if "# ruleid:" in text)
    if "def kernel(x" not in wrong:
        return
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            launched(wrong, rule, tmp_path, quietly=False)
            outcome = "warns" if heard else "runs"
        except Exception as error:
            outcome = f"refuses: {type(error).__name__}: {error}"
    says = rule.words.get("Our simulator", "runs it")
    said = "warns" if "warn" in says else "runs"
    expected = "refuses" if says.startswith("refuses") else said
    assert outcome.partition(":")[0] == expected, outcome

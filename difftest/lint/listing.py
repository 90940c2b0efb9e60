"""The page of all rules, in Markdown: what each says, where it holds, and who refuses it."""

from __future__ import annotations

import csv
from pathlib import Path

from difftest.lint.check import rules
from difftest.lint.rule import SDKS, Rule

_COLUMNS = (
    *("rule", "what a kernel does", "looks at", "SDK", "machines", "known"),
    *("our simulator", "AWS's simulator", "compiler", "sources"),
)
_HEAD = f"""# The linter's rules

`difftest lint --explain ID` shows one rule with a wrong and a right kernel, as it stands below.

| {" | ".join(_COLUMNS)} |
|{"---|" * len(_COLUMNS)}
"""
_REFUSALS = """
## What the compiler was seen to refuse

What the simulator refuses needs no rule.

| what | machines | our simulator | rule |
|---|---|---|---|
"""
_TEXT = (Path(__file__).parent / "data/refusals.csv").read_text(encoding="utf-8")
REFUSALS = tuple(csv.DictReader(_TEXT.splitlines()))
"""What the compiler was seen to refuse: what, on which machines, the ids of rules, what the
simulator does, why no rule looks for it. Source: records of its answers, most of them
foxl-ai/kiln docs/neuron-notes.md, SDK 2.32.
"""


def rules_page() -> str:
    """The rules, the table of refusals, and the page of each rule."""
    own = "".join(f"| {' | '.join(map(_cell, _row(one)))} |\n" for one in rules().values())
    refused = "".join(
        f"| {_cell(row['what'])} | {row['machines']} | {row['simulator']} | "
        f"{', '.join(map(_link, row['rules'].split())) or row['reason'] or 'none is needed'} |\n"
        for row in REFUSALS
    )
    pages = "".join(f'\n<a id="{id}"></a>\n\n#{one.page}' for id, one in rules().items())
    return _HEAD + own + _REFUSALS + refused + pages


def _row(one: Rule) -> tuple[str, ...]:
    versions = [sdk.version for sdk in SDKS.values() if one.holds(sdk, None)]
    return (
        _link(one.id),
        one.title,
        "a trace" if one.reads_traces else "source",
        f"{versions[0]} to {versions[-1]}",
        ", ".join(sorted(one.targets)) or "all",
        one.confidence.value,
        one.words.get("Our simulator", "runs it"),
        one.words.get("AWS's simulator", "runs it"),
        one.words.get("Compiler", "refuses it"),
        one.words["Sources"],
    )


def _link(id: str) -> str:
    return f"[{id}](#{id})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "&#123;").replace("[NCC", "\\[NCC")

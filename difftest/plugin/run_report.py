"""A session for machines: a JSON file, and properties of the JUnit report.

The JSON has ``backends``, ``kernels`` (the counts of the summary), ``tests`` (outcome, and for a
kernel test that failed its case), ``not_reached`` (branches and loops that no case took),
``not_collected`` and ``exit_code``; ``format`` changes when a
field does.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difftest.harness.coverage import missed
from difftest.harness.tally import Tally

if TYPE_CHECKING:
    from difftest.backends.base import Backend

FORMAT = 2
CASE = "difftest_case"
"""The property of a failed kernel test that holds its case, as ``pytest --case`` takes it."""


def versions() -> dict[str, str]:
    """What ran the session."""
    return {
        "nki-difftest": metadata.version("nki-difftest"),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "hypothesis": metadata.version("hypothesis"),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def write_report(
    file: Path,
    backends: Iterable[Backend],
    tally: Tally,
    reports: Iterable[pytest.TestReport],
    not_collected: Collection[str],
    exit_code: int,
) -> None:
    """Write the JSON file, in a folder that is there."""
    document = {
        "format": FORMAT,
        "versions": versions(),
        "backends": [{"name": one.name, "description": one.description} for one in backends],
        "kernels": [
            {"kernel": kernel, "backend": backend, **asdict(counts)}
            for (kernel, backend), counts in sorted(tally.rows.items())
        ],
        "inconclusive": sorted(tally.reasons),
        "not_reached": [asdict(one) for one in missed(tally.coverage)],
        "tests": [_test(report) for report in reports if _decides(report)],
        "not_collected": sorted(not_collected),
        "exit_code": exit_code,
    }
    file.write_text(json.dumps(document, indent=1), encoding="utf-8")


def _decides(report: object) -> bool:
    """Whether it is the report of a test's outcome: of its call, or of what kept it from one."""
    return isinstance(report, pytest.TestReport) and (report.when == "call" or not report.passed)


def _test(report: pytest.TestReport) -> dict[str, Any]:
    properties = dict(report.user_properties)
    found: dict[str, Any] = {
        "id": report.nodeid,
        "outcome": report.outcome if report.when == "call" else f"{report.when} {report.outcome}",
        "seconds": round(report.duration, 3),
    }
    if CASE in properties:
        found["case"] = json.loads(str(properties[CASE]))
    if report.failed:
        found["failure"] = report.longreprtext
    return found


def add_suite_properties(config: pytest.Config, backends: Iterable[Backend]) -> None:
    """Tell a JUnit report, if one is written, which backends and versions ran."""
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    for one in backends:
        xml.add_global_property(f"difftest_backend_{one.name}", one.description)
    for name, version in versions().items():
        xml.add_global_property(f"difftest_version_{name}", version)

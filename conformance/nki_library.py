"""Run the tests of aws-neuron/nki-library on the embedded simulator (conformance/README.md).

``python -m conformance.nki_library PATH [--write] [pytest's arguments]``: PATH is a checkout of
https://github.com/aws-neuron/nki-library. The suite has one place where it meets a simulator
(test/utils/simulation_setup.py); there it finds the embedded ``nki``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from conformance.outcomes import FAILED, Outcome
from conformance.ranks import Ranks
from conformance.running import Limit, run
from conformance.stand_ins import absent, as_cpu_simulator, neuron_dtypes, nki_parts
from conformance.table import place, section
from difftest.simulator import strictness
from difftest.testing.host.installation import embedded_with_predictions

HOOK = Path("test", "utils", "simulation_setup.py")
"""The file in which the suite calls its simulator; a checkout without it is another project."""
UNPUBLISHED = (
    "test.utils.scripts",
    "test.utils.scripts.remote_lock_scripts",
    "test.utils.perf_analysis_private",
)
"""Modules that the suite imports and some published commits lack (that of 2026-04-13 all): they
share devices and read profiles, and neither happens on a simulator."""
DEFAULT = ("test/integration/nkilib", "-m", "fast")
"""The default arguments of pytest: the tests that the suite marks as fast."""


@contextmanager
def simulator_in_place(checkout: Path) -> Iterator[None]:
    """Install the embedded modules under the names that the suite imports, within the block."""
    with embedded_with_predictions():
        found = {
            name: m
            for name, m in sys.modules.items()
            if name.partition(".")[0] == "nki"
        }
        found |= nki_parts(found)
        for name, part in found.items():
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(found[parent], child, part)
        placed: dict[str, ModuleType] = {
            **found,
            **as_cpu_simulator(found),
            "neuron_dtypes": neuron_dtypes(found["nki.language"]),
        }
        placed |= {
            name: absent(name) for name in UNPUBLISHED if not published(checkout, name)
        }
        before = {name: sys.modules.get(name) for name in placed}
        sys.modules.update(placed)
        try:
            yield
        finally:
            for name, module in before.items():
                if module is None:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = module


class NothingCompiled:
    """A pytest plugin that gives the suite's orchestrator no compiled kernel.

    The orchestrator also reads its compiled kernel after a simulation, but made none (commit of
    2026-04-13, test/utils/test_orchestrator.py: ``_compiled_kernel``).
    """

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        """After the conftest has imported it, before a test makes one."""
        module = sys.modules.get("test.utils.test_orchestrator")
        if module is not None:
            module.Orchestrator._compiled_kernel = None  # type: ignore[attr-defined]


def published(checkout: Path, module: str) -> bool:
    """Return whether the checkout has a module's file or folder."""
    path = checkout.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def outcomes(checkout: Path, arguments: Sequence[str], seconds: float) -> list[Outcome]:
    """Run the suite in ``checkout`` with pytest's ``arguments``; what its tests leave is removed.

    A test that takes more than ``seconds`` of processor time fails.

    Raises
    ------
    FileNotFoundError
        If ``checkout`` has no hook for a simulator.
    RuntimeError
        If pytest refused the arguments, or found no test.
    """
    if not (checkout / HOOK).is_file():
        raise FileNotFoundError(
            f"no {HOOK} in {checkout}: this is no checkout of nki-library"
        )
    with tempfile.TemporaryDirectory() as left, simulator_in_place(checkout):
        options = [
            "--test-mode=simulation",
            f"--output-directory={left}/output",
            f"--override-ini=artifacts_dir={left}/artifacts",
            "-p",
            "no:cacheprovider",
            "--show-capture=no",
            "--continue-on-collection-errors",
            "-q",
            "--tb=line",
        ]
        paths = [checkout, checkout / "src"]
        plugins = [NothingCompiled(), Ranks(), Limit(seconds)]
        return run(checkout, [*options, *(arguments or DEFAULT)], paths, plugins)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on its page; 1 where a test failed, 2 where none could run."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.nki_library",
        description=__doc__,
        allow_abbrev=False,
    )
    parser.add_argument("path", type=Path, help="a checkout of aws-neuron/nki-library")
    parser.add_argument(
        "--write", action="store_true", help="put the table on its page"
    )
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds for each (%(default)s)"
    )
    parser.add_argument(
        "--strictness", default="seen", help="of the simulator (%(default)s)"
    )
    known, rest = parser.parse_known_args(arguments)
    checkout = known.path.resolve()
    try:
        with strictness(known.strictness):
            results = outcomes(checkout, rest, known.limit)
    except (FileNotFoundError, RuntimeError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    relaxed = () if known.strictness == "seen" else ("--strictness", known.strictness)
    shown = _quoted((*(rest or DEFAULT), *relaxed))
    command = f"python -m conformance.nki_library PATH {shown}"
    text = section(f"nki-library: {shown}", command, checkout, results)
    if known.write:
        place(text)
    else:
        print(text)
    return int(any(outcome.result == FAILED for outcome in results))


def _quoted(arguments: Sequence[str]) -> str:
    return " ".join(f"'{word}'" if " " in word else word for word in arguments)


if __name__ == "__main__":
    sys.exit(main())

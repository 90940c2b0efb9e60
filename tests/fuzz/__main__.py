"""``python -m tests.fuzz --minutes 10``: look for disagreements between the two modes."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.campaign import DIALECTS, Campaign
from tests.fuzz.comparison import MODES, Disagreement

INTERVAL = 60.0
"""Seconds between two lines of progress."""


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign, print its findings and its speed, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=int, default=8, help="statements drawn for a program"
    )
    parser.add_argument(
        "--modes",
        default=",".join(MODES),
        help="one mode alone looks only for errors that are not the simulator's own",
    )
    parser.add_argument("--dialect", choices=(*DIALECTS, "both"), default="both")
    chosen = parser.parse_args(arguments)
    dialects = tuple(DIALECTS) if chosen.dialect == "both" else (chosen.dialect,)
    found = [
        _look(dialect, 60 * chosen.minutes / len(dialects), chosen)
        for dialect in dialects
    ]
    return 1 if any(found) else 0


def _look(dialect: str, seconds: float, chosen: argparse.Namespace) -> bool:
    """A campaign in one dialect; whether it found anything."""
    campaign = Campaign(
        modes=tuple(chosen.modes.split(",")),
        longest=chosen.longest,
        dialect=dialect,
        report=_print_failure,
    )
    end = time.monotonic() + seconds
    seed = chosen.seed
    while time.monotonic() < end:
        campaign.run(min(INTERVAL, end - time.monotonic()), seed)
        print(f"{dialect}: {campaign.statistics}", flush=True)
        seed += 1000
    statistics = campaign.statistics
    print(
        "\nopcodes:",
        ", ".join(f"{name} {n}" for name, n in statistics.opcodes.most_common()),
    )
    for signature, failure in statistics.failures.items():
        print(f"{statistics.repeats[signature]:6} times: {failure.signature}")
    return bool(statistics.failures)


def _print_failure(failure: Disagreement) -> None:
    print(f"\n=== {failure.signature}\n{failure}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())

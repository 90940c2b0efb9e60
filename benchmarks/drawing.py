"""Measure how well drawn cases find planted bugs, and how small the cases are that they end with.

``python -m benchmarks.drawing`` plants each of ``CONDITIONS`` in a kernel of plain NumPy, which is
wrong where the condition holds, and draws from ``--seeds`` seeds. It prints

- ``minimal``: the share of final cases of which no coordinate alone can be smaller, and CPU time;
- ``met``: the share of plants that 20, 50, 100 and 300 cases meet;
- ``shares``: the frequency of limits, equal sizes, later tiles and kinds of data among the cases;
- ``cost``: CPU time of a drawn case with a kernel that does nothing.

Each runs alone by its name: ``python -m benchmarks.drawing met --seeds 8``.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, settings

from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.meta.drawing import drawn
from tests.unit.standin import PlainBackend

ROWS, COLUMNS, POOLS = 256, 600, (1, 2, 3)
DTYPES = ("float32", "bfloat16")
TABLE = {48: 1, 75: 2, 301: 2}
PRIMES = {
    n for n in range(2, COLUMNS) if all(n % k for k in range(2, math.isqrt(n) + 1))
}

CONDITIONS: dict[str, Callable[[int, int, int, str], bool]] = {
    "columns % 3 == 2 and rows > 128": lambda r, c, p, d: c % 3 == 2 and r > 128,
    "columns % 4 == 3": lambda r, c, p, d: c % 4 == 3 and c > 20,
    "columns % 7 == 5": lambda r, c, p, d: c % 7 == 5 and c > 30,
    "columns % 128 > 100": lambda r, c, p, d: c % 128 > 100,
    "columns is a square": lambda r, c, p, d: math.isqrt(c) ** 2 == c and c > 9,
    "columns is a prime": lambda r, c, p, d: c in PRIMES and c > 60,
    "(rows + columns) % 5 == 4": lambda r, c, p, d: (r + c) % 5 == 4 and c > 10,
    "(rows + columns) % 64 == 33": lambda r, c, p, d: (r + c) % 64 == 33,
    "rows * columns % 6 == 5": lambda r, c, p, d: r * c % 6 == 5 and r > 3,
    "3 * rows + 2 * columns > 700": lambda r, c, p, d: 3 * r + 2 * c > 700,
    "rows > columns": lambda r, c, p, d: r > c > 2,
    "rows == columns": lambda r, c, p, d: r == c and r > 4,
    "rows + columns > 400": lambda r, c, p, d: r + c > 400,
    "a table": lambda r, c, p, d: c in TABLE and r % 3 == TABLE[c],
    "columns > 512": lambda r, c, p, d: c > 512,
    "rows > 128": lambda r, c, p, d: r > 128,
    "rows == 129": lambda r, c, p, d: r == 129,
    "columns == 513 or columns == 300": lambda r, c, p, d: c in (513, 300),
    "columns in 200..211": lambda r, c, p, d: 200 <= c < 212,
    "pool == 2 and columns is odd": lambda r, c, p, d: p == 2 and c % 2 == 1 and c > 9,
    "pool == 3 and rows % 4 == 1": lambda r, c, p, d: p == 3 and r % 4 == 1 and r > 5,
    "bfloat16 and columns % 5 == 2": lambda r, c, p, d: d == DTYPES[1] and c % 5 == 2,
    "bfloat16 and rows > 64": lambda r, c, p, d: d == DTYPES[1] and r > 64,
    "columns % rows == 1": lambda r, c, p, d: r > 1 and c % r == 1 and c > 40,
    "three tiles": lambda r, c, p, d: -(-c // 128) >= 3 and r % 2 == 0,
}


RARE: dict[str, Callable[[int, int, int, str], bool]] = {
    "rows == 217 and columns % 64 == 33": lambda r, c, p, d: r == 217 and c % 64 == 33,
    "rows % 32 == 31 and columns % 128 == 77": lambda r, c, p, d: (
        c % 128 == 77 and r % 32 == 31
    ),
    "columns == 333": lambda r, c, p, d: c == 333,
    "rows * columns % 1000 == 7": lambda r, c, p, d: r * c % 1000 == 7,
    "a pair": lambda r, c, p, d: (r, c) in {(64, 512), (217, 443), (30, 600)},
    "rows + columns == 777": lambda r, c, p, d: r + c == 777,
    "pool == 3 in bfloat16 beyond 512": lambda r, c, p, d: (
        p == 3 and d == DTYPES[1] and c > 512
    ),
    "345 <= columns < 357 and rows % 32 == 5": lambda r, c, p, d: (
        345 <= c < 357 and r % 32 == 5
    ),
    "the fourth tile is 19 wide": lambda r, c, p, d: c == 3 * 128 + 19,
    "no row is left": lambda r, c, p, d: r % 64 == 0 and c % 96 == 5,
}

PROPERTIES: dict[str, Callable[[Any], bool]] = {
    "127..129": lambda case: near(case, 128),
    "511..513": lambda case: near(case, 512),
    "129": lambda case: 129 in case.values.values(),
    "513": lambda case: 513 in case.values.values(),
    "equal sizes": lambda case: case.values["rows"] == case.values["columns"],
    "third tile of 128": lambda case: case.values["columns"] > 256,
    "second tile of 512": lambda case: case.values["columns"] > 512,
    "bfloat16": lambda case: case.dtype == DTYPES[1],
    "pool 3": lambda case: case.values["pool"] == 3,
    "zeros": lambda case: case.data["a"].kind == "zeros",
    "ones": lambda case: case.data["a"].kind == "ones",
    "iota": lambda case: case.data["a"].kind == "iota",
    "fill": lambda case: case.data["a"].kind == "fill",
    "integers": lambda case: case.data["a"].kind == "integers",
    "uniform": lambda case: case.data["a"].kind == "uniform",
    "random": lambda case: case.data["a"].kind == "random",
    "outliers": lambda case: case.data["a"].kind == "outliers",
    "the plainest": lambda case: (
        (case.values["rows"], case.values["columns"]) == (1, 1)
    ),
}


def near(case: Any, limit: int) -> bool:
    """Return whether a size is a limit, or one off."""
    return any(abs(size - limit) <= 1 for size in case.values.values())


def planted(is_wrong: Callable[[int, int, int, str], bool]) -> KernelSpec:
    """Return a spec whose kernel is wrong where a condition holds."""

    def kernel(a: Any, pool: int) -> Any:
        result = a.copy()
        if is_wrong(*a.shape, pool, a.dtype.name):
            result[-1, -1] = 7
        return result

    return KernelSpec(
        kernel=kernel,
        reference=lambda a, pool: a.astype(np.float64),
        domain={
            "rows": sizes(1, ROWS),
            "columns": sizes(1, COLUMNS),
            "pool": POOLS,
        },
        inputs={"a": "rows columns"},
        parameters=["pool"],
        dtypes=DTYPES,
    )


def final_case(spec: KernelSpec, seed: int, count: int) -> DifferentialFailure | None:
    """Return the failure that a test with ``count`` cases ends with."""
    test = decorate(spec, lambda case: case.check())
    few = settings(
        max_examples=count,
        phases=[Phase.generate, Phase.shrink],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        backend=BACKEND,
    )
    try:
        few(hypothesis.seed(seed)(test))(difftest_runner=Runner((PlainBackend(),)))
    except DifferentialFailure as failure:
        return failure
    return None


def smaller(case: Any) -> list[tuple[int, int, int, str]]:
    """Return each case with one coordinate smaller, as (rows, columns, pool, dtype)."""
    rows, columns, pool = (case.values[name] for name in ("rows", "columns", "pool"))
    return [
        *((r, columns, pool, case.dtype) for r in range(1, rows)),
        *((rows, c, pool, case.dtype) for c in range(1, columns)),
        *((rows, columns, p, case.dtype) for p in POOLS[: POOLS.index(pool)]),
        *((rows, columns, pool, d) for d in DTYPES[: DTYPES.index(case.dtype)]),
    ]


def measure_minimal(seeds: int) -> None:
    """Print the share of final cases that are minimal."""
    minimal = found = 0
    seconds: list[float] = []
    for name, is_wrong in CONDITIONS.items():
        ends: list[str] = []
        own = 0
        for seed in range(seeds):
            before = time.process_time()
            failure = final_case(planted(is_wrong), seed, 20)
            seconds.append(time.process_time() - before)
            if failure is None:
                continue
            own += 1
            is_minimal = not any(is_wrong(*other) for other in smaller(failure.case))
            is_minimal &= failure.case.data["a"].kind in ("zeros",)
            minimal += is_minimal
            if not is_minimal:
                ends.append(f"{failure.case.values} {failure.case.dtype}")
        found += own
        print(f"  {name}: {own - len(ends)} of {own} {'; '.join(ends)}", flush=True)
    print(f"minimal: {minimal} of {found}, met {found} of {seeds * len(CONDITIONS)}")
    print(
        f"CPU: {sum(seconds):.1f} s, median {statistics.median(seconds):.2f} s a test"
    )


def measure_met(seeds: int) -> None:
    """Print the share of seeds whose 20, 50, 100 and 300 cases meet each condition."""
    counts = (20, 50, 100, 300)
    every: list[int] = []
    began = time.process_time()
    for name, is_wrong in (CONDITIONS | RARE).items():

        def holds(case: Any, is_wrong: Any = is_wrong) -> bool:
            values = case.values
            return is_wrong(
                values["rows"], values["columns"], values["pool"], case.dtype
            )

        spec = planted(is_wrong)
        numbers = []
        for seed in range(seeds):
            cases = drawn(spec, counts[-1], seed, holds)
            numbers.append(len(cases) if holds(cases[-1]) else 1000)
        every += numbers
        print(f"  {name}: {_shares(numbers, counts)}", flush=True)
    print(
        f"met in {counts}: {_shares(every, counts)}, median {statistics.median(every)}"
    )
    print(f"CPU: {time.process_time() - began:.1f} s")


def _shares(numbers: list[int], counts: tuple[int, ...]) -> str:
    shares = (sum(n <= count for n in numbers) / len(numbers) for count in counts)
    return " ".join(f"{share:.1%}" for share in shares)


def measure_shares(seeds: int) -> None:
    """Print how frequent properties are among 20 cases, and sessions that have one."""
    found: dict[str, list[list[bool]]] = {}
    spec = planted(lambda *_: False)
    for seed in range(seeds):
        own: dict[str, list[bool]] = {}
        cases = drawn(spec, 20, seed)
        for case in cases:
            for name, holds in PROPERTIES.items():
                own.setdefault(name, []).append(holds(case))
        distinct = len({repr(case) for case in cases})
        own["distinct"] = [True] * distinct + [False] * (len(cases) - distinct)
        for name, held in own.items():
            found.setdefault(name, []).append(held)
    for name, sessions in found.items():
        flat = [held for session in sessions for held in session]
        some = sum(map(any, sessions)) / len(sessions)
        print(f"  {name}: {sum(flat) / len(flat):.3f} of cases, {some:.2f} of sessions")


def measure_cost(seeds: int) -> None:
    """Print the CPU time of a drawn case, with a kernel that copies its input."""
    spec = planted(lambda *_: False)
    for run in (lambda case: None, lambda case: case.check()):
        times: list[float] = []
        for seed in range(seeds):
            test = decorate(spec, _checked(run))
            plain = settings(
                max_examples=300,
                phases=[Phase.generate],
                database=None,
                deadline=None,
                backend=BACKEND,
            )
            before = time.process_time()
            plain(hypothesis.seed(seed)(test))(
                difftest_runner=Runner((PlainBackend(),))
            )
            times.append((time.process_time() - before) / 300 * 1e3)
        print(f"  a case: {min(times):.2f} ms, median {statistics.median(times):.2f}")


def _checked(run: Callable[[Any], None]) -> Callable[[Any], None]:
    def check(case: Any) -> None:
        run(case)
        case.verdicts = {"none": Match(elements=1, exact=True)}

    return check


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = {
        "minimal": measure_minimal,
        "met": measure_met,
        "shares": measure_shares,
        "cost": measure_cost,
    }
    parser.add_argument("part", nargs="*", default=list(parts))
    parser.add_argument("--seeds", type=int, default=8)
    asked = parser.parse_args()
    print(f"Hypothesis {hypothesis.__version__}")
    for part in asked.part:
        parts[part](asked.seeds)


if __name__ == "__main__":
    main()

"""Ten bugs that are planted by hand: what their author sees without this package, and with it.

``python -m tests.meta.ten_bugs`` writes docs/contributing/ten-bugs.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from difftest import KernelSpec, sizes
from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Iota
from difftest.testing.drawing.explicit import minimal_case
from difftest.testing.harness.direct_call import check
from difftest.testing.harness.failures import DifferentialFailure
from difftest.tools.mutants.mutant import (
    Mutant,
    apply_mutant,
    mutable_functions,
    qualified_name,
    read_source,
)
from tests.meta.search import smallest_failure

with embedded():
    from tests.meta import ten_kernels

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/contributing/ten-bugs.md"
RTOL, ATOL = 1e-2, 1e-4
"""Tolerances of ``np.testing.assert_allclose`` in examples of NKI."""

DOUBLED = KernelSpec(
    kernel=ten_kernels.doubled,
    reference=lambda x, bias: 2 * x.astype(np.float64) + bias,
    domain={"M": sizes(1, 400), "N": sizes(1, 600)},
    inputs={"x": "M N", "bias": "M 1"},
    dtypes=("float32", "bfloat16"),
    edges=False,
)
SUMS = KernelSpec(
    kernel=ten_kernels.row_sums,
    reference=lambda x: x.astype(np.float64).sum(1, keepdims=True),
    domain={"M": sizes(1, 128), "N": sizes(1, 1100)},
    inputs={"x": "M N"},
    output_dtype="float32",
    edges=False,
)
PRODUCT = KernelSpec(
    kernel=ten_kernels.product,
    reference=lambda lhsT, rhs: lhsT.astype(np.float64).T @ rhs,
    domain={"K": sizes(1, 400), "M": sizes(1, 128), "N": sizes(1, 512)},
    inputs={"lhsT": "K M", "rhs": "K N"},
    output_dtype="float32",
    edges=False,
)


@dataclass(frozen=True)
class Bug:
    """A text of a kernel, and the wrong text that replaces it.

    Attributes
    ----------
    tried : shape of the example with which an author tries the kernel.
    smallest : smallest case that shows the bug, and its dtype, by the argument ``why``.
    """

    title: str
    spec: KernelSpec
    right: str
    wrong: str
    tried: Mapping[str, int]
    smallest: tuple[Mapping[str, int], str]
    why: str

    def mutant(self) -> Mutant:
        """The kernel with it."""
        function, *_ = mutable_functions(self.spec.kernel)
        begin = function.__code__.co_firstlineno
        source = read_source(function.__code__.co_filename)
        above = len("".join(source.text.splitlines(keepends=True)[: begin - 1]))
        start = source.text.index(self.right, above)
        change = source.edit(start, start + len(self.right), self.wrong)
        return Mutant(
            function.__code__.co_filename, qualified_name(function), self.title, change
        )

    def before(self) -> str:
        """Return the message of ``np.testing.assert_allclose`` for an example of usual shape."""
        case = minimal_case(self.spec, dict(self.tried), "float32")
        inputs = self.spec.inputs_of(case)
        function, *_ = mutable_functions(self.spec.kernel)
        with apply_mutant(function, self.mutant()):
            try:
                got = launch(self.spec.kernel, inputs).outputs[0]
                np.testing.assert_allclose(
                    got,
                    self.spec.reference(*inputs),
                    rtol=RTOL,
                    atol=ATOL,
                    verbose=False,
                )
            except Exception as error:
                lines = [
                    line.strip() for line in str(error).splitlines() if line.strip()
                ]
                told = " ".join(lines[: 2 if isinstance(error, AssertionError) else 1])
                return f"{type(error).__name__}: {told}"
        return "passes"

    def after(self, seed: int = 0) -> DifferentialFailure:
        """Return the smallest failure that a test finds."""
        function, *_ = mutable_functions(self.spec.kernel)
        with apply_mutant(function, self.mutant()):
            return smallest_failure(self.spec, seed)

    def report(self) -> str:
        """Return a test's report on the smallest case, on data that count."""
        values, dtype = self.smallest
        case = Case(dict(values), dtype, {name: Iota() for name in self.spec.inputs})
        function, *_ = mutable_functions(self.spec.kernel)
        with apply_mutant(function, self.mutant()):
            try:
                check(self.spec, case)
            except DifferentialFailure as failure:
                return str(failure).replace(f"{ROOT}{os.sep}", "").replace("\\", "/")
        raise AssertionError(f"{self.title}: not found in {case}")


EXAMPLE = {"M": 256, "N": 512}
ONE = {"M": 1, "N": 1}
COPY = "nisa.dma_copy(dst=out[here, :], src=tile)"
BUGS = (
    Bug(
        "The rows after the last whole tile",
        DOUBLED,
        "range(0, rows, 128)",
        "range(0, rows // 128 * 128, 128)",
        EXAMPLE,
        (ONE, "float32"),
        "One row is the minimum, and less than a whole tile.",
    ),
    Bug(
        "A tile of more than 128 partitions",
        DOUBLED,
        "min(128, rows - first)",
        "rows - first",
        {"M": 128, "N": 512},
        ({"M": 129, "N": 1}, "float32"),
        "With up to 128 rows, `min` returns the number of rows anyway.",
    ),
    Bug(
        "Each tile is written where the first one belongs",
        DOUBLED,
        COPY,
        "nisa.dma_copy(dst=out[0:count, :], src=tile)",
        {"M": 128, "N": 512},
        ({"M": 129, "N": 1}, "float32"),
        "The first tile is right. The second begins with row 128.",
    ),
    Bug(
        "A load is left out",
        DOUBLED,
        "nisa.dma_copy(dst=tile, src=x[here, :])",
        "pass",
        EXAMPLE,
        (ONE, "float32"),
        "Every case shows it.",
    ),
    Bug(
        "A dtype is hard-coded",
        DOUBLED,
        "dtype=x.dtype, buffer=nl.shared_hbm",
        "dtype=nl.float32, buffer=nl.shared_hbm",
        EXAMPLE,
        (ONE, "bfloat16"),
        "Every case that is not float32 shows it.",
    ),
    Bug(
        "The first row's bias is used for all rows",
        DOUBLED,
        "src=bias[here, :]",
        "src=bias[0:1, :].broadcast(0, count)",
        EXAMPLE,
        ({"M": 2, "N": 1}, "float32"),
        "The first row is right.",
    ),
    Bug(
        "A total is overwritten",
        SUMS,
        "data1=total, data2=part, op=nl.add",
        "data1=part, data2=part, op=nl.max",
        {"M": 128, "N": 512},
        ({"M": 1, "N": 513}, "float32"),
        "With up to 512 columns there is only one part, and it is the total.",
    ),
    Bug(
        "The last column is left out",
        SUMS,
        "dst=tile, src=x[:, first : first + count]",
        "dst=tile[:, 0 : count - 1], src=x[:, first : first + count - 1]",
        EXAMPLE | {"M": 128},
        (ONE, "float32"),
        "The kernel loads all columns but the last, and there is only one.",
    ),
    Bug(
        "Each product overwrites the total",
        PRODUCT,
        "accumulate=first > 0",
        "accumulate=False",
        {"K": 128, "M": 128, "N": 512},
        ({"K": 129, "M": 1, "N": 1}, "float32"),
        "With up to 128 terms there is only one product.",
    ),
    Bug(
        "Operands of a product are swapped",
        PRODUCT,
        "stationary=left, moving=right",
        "stationary=right, moving=left",
        {"K": 128, "M": 128, "N": 128},
        ({"K": 1, "M": 1, "N": 2}, "float32"),
        "The result is transposed, and a result of 1 x 1 is its own transpose.",
    ),
)


def page() -> str:
    """The page of all bugs."""
    lines = [HEAD]
    for number, bug in enumerate(BUGS, 1):
        inputs = ("x:", "bias:", "lhsT:", "rhs:", "lost:")
        report = bug.report().splitlines()[1:]
        told = [line for line in report if not line.lstrip().startswith(inputs)]
        tried = " x ".join(map(str, bug.tried.values()))
        lines += [
            f"## {number}. {bug.title}\n",
            f"`{bug.right}` became `{bug.wrong}`.\n",
            f"Before, {tried}: {bug.before()}.\n",
            "\n".join(["```", *told, "```", "", bug.why, ""]),
        ]
    return "\n".join(lines).rstrip() + "\n"


HEAD = f"""# Ten bugs, before and after

This page plants ten common mistakes, each in a correct kernel of a few lines. *Before* is the result of an example: one shape, random float32, `np.testing.assert_allclose` with rtol={RTOL} and atol={ATOL} on the simulator's output. Below it is the report of a kernel test: the smallest case. The last line explains why no smaller case fails.

`python -m tests.meta.ten_bugs` writes this page, and a test compares it.
"""  # noqa: E501


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

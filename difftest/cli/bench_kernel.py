"""`difftest bench kernel`: one kernel of the assignment's Part 1, checked and then timed."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.case import Case
from difftest.harness.failures import DifferentialFailure
from difftest.harness.recipes import Random
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec
from difftest.harness.spec_arguments import SpecError
from difftest.host.installation import embedded_with_predictions
from difftest.host.shipped import import_shipped
from difftest.simulator import launch

KERNELS = {
    "naive": ("kernels.classic.vector_add", "vector_add_naive"),
    "tiled": ("kernels.classic.vector_add", "vector_add_tiled"),
    "stream": ("kernels.classic.vector_add", "vector_add_stream"),
    "transpose": ("kernels.classic.transpose", "matrix_transpose"),
}


@click.command()
@click.argument("kernel", type=click.Choice(list(KERNELS)))
@click.option("-n", type=click.IntRange(min=1), required=True, help="Elements, or columns.")
@click.option("-m", type=click.IntRange(min=1), help="Rows of the matrix; n if not given.")
def kernel(kernel: str, n: int, m: int | None) -> None:
    """Check a kernel of Part 1 on random float32 data, then time its simulation.

    The time is this computer's, for simulating the kernel; it says nothing of a device.
    """
    if m is not None and kernel != "transpose":
        raise click.UsageError(f"-m is for transpose; {kernel} takes vectors of -n elements")
    with embedded_with_predictions():
        spec = _spec(kernel)
        data = {name: Random(seed) for seed, name in enumerate(spec.inputs)}
        case = Case({"n": n, "m": m or n}, "float32", data)
        shape = spec.shape(next(iter(spec.inputs)), case.values)
        click.echo(f"{spec.name} on {' x '.join(map(str, shape))} float32")
        try:
            Runner((EmbeddedSimulator(),)).check(spec, case)
        except (DifferentialFailure, SpecError) as error:
            raise click.ClickException(str(error)) from None
        click.echo(f"correct: {int(np.prod(shape)):,} elements compared")
        seconds, instructions = _time(spec, case)
    click.echo(
        f"simulated in {seconds * 1e3:,.1f} ms on this computer "
        f"({instructions:,} instructions; not a device's latency)"
    )


def _spec(name: str) -> KernelSpec:
    module, function = KERNELS[name]
    vectors = name != "transpose"
    operation = "vector_add" if vectors else "transpose"
    values: dict[str, Any] = {"n": (1,), "m": (1,)}
    return KernelSpec(
        kernel=getattr(import_shipped(module), function),
        reference=getattr(import_shipped(f"reference.{operation}"), operation),
        domain=values,
        inputs={"a_vec": "n", "b_vec": "n"} if vectors else {"a_tensor": "m n"},
        reduction=1 if vectors else 0,
    )


def _time(spec: KernelSpec, case: Case) -> tuple[float, int]:
    """Seconds of one simulation, and the number of its instructions."""
    arrays = spec.inputs_of(case)
    began = time.perf_counter()
    launch(spec.kernel, arrays, record=False)
    seconds = time.perf_counter() - began
    return seconds, len(launch(spec.kernel, arrays).trace)

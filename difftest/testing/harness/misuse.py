"""Wrong uses of a kernel's arguments, which the comparison of outputs does not show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from difftest.support.rounding import Array
from difftest.testing.backends.base import Completed, KernelCall
from difftest.testing.contract.reference import array_bytes
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.verdict import Mismatch, Verdict, is_failure


def input_misuse(
    spec: KernelSpec, inputs: Sequence[Array], call: KernelCall, ran: Completed
) -> Mismatch | None:
    """Return the misuse of inputs in a run; None if the kernel only read its inputs.

    Arguments that the spec names under ``outputs`` may change.

    Parameters
    ----------
    inputs : the inputs before the run.
    call : the call of the run; its inputs may have changed.
    """
    undeclared: dict[str, Mismatch] = {}
    for name, before, now in zip(spec.inputs, inputs, call.inputs, strict=True):
        if name in spec.outputs:
            continue
        write = _write_to_input(name, before, now, ran)
        if write is not None:
            undeclared[name] = write
        elif any(array is now for array in ran.returned):
            message = (
                f"the kernel returns its input {name} itself, without a write to it"
            )
            return Mismatch("inputs", None, message, now.size, 0)
    if not undeclared:
        return None
    first = next(iter(undeclared.values()))
    rule = _undeclared_text(spec, undeclared)
    return replace(first, message=f"{first.message}. {rule}")


def with_misuse(verdict: Verdict, misuse: Mismatch | None) -> tuple[Verdict, str]:
    """Return the verdict on a kernel that misuses its inputs, and a note for the report.

    An undeclared write explains a wrong number of results.
    """
    if misuse is None:
        return verdict, ""
    is_count = isinstance(verdict, Mismatch) and verdict.kind == "outputs"
    if not is_failure(verdict) or (is_count and misuse.kind == "inputs"):
        return misuse, ""
    return verdict, misuse.message if isinstance(verdict, Mismatch) else ""


def _write_to_input(
    name: str, before: Array, now: Array, ran: Completed
) -> Mismatch | None:
    """Return the mismatch for a kernel that wrote to an input; None if it did not."""
    width = f"u{before.dtype.itemsize}"
    changed = array_bytes(before).view(width) != array_bytes(now).view(width)
    count = int(np.count_nonzero(changed))
    if count:
        places = np.argwhere(changed.reshape(before.shape))
        first = [int(index) for index in places[0]]
        text = f"{count} of {changed.size} elements, the first at {first}"
        message = f"the kernel overwrites its input {name}: {text}"
        return Mismatch("inputs", None, message, changed.size, count)
    if any(array is now for array in ran.written):
        message = (
            f"the kernel writes to its input {name}, here with the values that it had"
        )
        return Mismatch("inputs", None, message, changed.size, 0)
    return None


def _undeclared_text(spec: KernelSpec, names: Iterable[str]) -> str:
    """Return the rule that a write to inputs breaks, and the declaration that allows it."""
    declared = {
        name: " ".join(spec.dimensions(name)) for name in (*spec.outputs, *names)
    }
    return (
        "A kernel writes only to arguments that outputs= names. If the write is intended, leave "
        f"inputs= as it is and pass outputs={declared}"
    )


def argument_note(spec: KernelSpec, verdict: Verdict, ran: Completed) -> str:
    """Return how a wrong kernel uses an argument against its spec; empty if it does not."""
    if not isinstance(verdict, Mismatch):
        return ""
    name = verdict.argument
    if ran.unset:
        unset = ran.unset[0]
        return (
            f"the kernel reads {unset} before it writes to it, and an argument that is under "
            "outputs= alone holds no data: name it under inputs= too, "
            f"{unset!r}: {' '.join(spec.dimensions(unset))!r}"
        )
    if name in ran.untouched:
        return f"the kernel wrote nothing to {name}, which outputs= names"
    return ""

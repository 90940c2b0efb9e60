"""A call of a kernel on a backend: what may not leave it, and what it does to its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from difftest.backends.base import Backend, Crashed, KernelCall, Outcome
from difftest.harness.reference import bytes_of
from difftest.harness.rounding import Array
from difftest.harness.verdict import Mismatch


def run_kernel(backend: Backend, call: KernelCall) -> Outcome:
    """Run a kernel; what would end the test quietly, such as ``pytest.skip``, is a crash of it."""
    try:
        return backend.run(call)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # Skipped and Failed of pytest, SystemExit
        return Crashed(error)


def overwritten(
    names: Sequence[str],
    given: Sequence[Array],
    after: Sequence[Array],
    written: Sequence[Array] = (),
) -> Mismatch | None:
    """What is wrong with a kernel that wrote to an input; None if it only read them all.

    Parameters
    ----------
    names : of the inputs.
    given, after : the arrays before the call and after it.
    written : those after it that the backend saw written, with equal values too.
    """
    rule = "A kernel reads its inputs; what it writes in place is named under outputs="
    for name, before, now in zip(names, given, after, strict=True):
        width = before.dtype.itemsize
        changed = (bytes_of(before) != bytes_of(now)).reshape(-1, width).any(axis=1)
        count, message = int(changed.sum()), ""
        if count:
            first = [int(one) for one in np.argwhere(changed.reshape(before.shape))[0]]
            message = f"the kernel overwrites its input {name}: {count} of {changed.size} elements"
            message += f", the first at {first}. {rule}"
        elif any(one is now for one in written):
            message = f"the kernel writes to its input {name}, and what it writes is what was "
            message += f"there in this case. {rule}"
        if message:
            return Mismatch("inputs", None, message, elements=changed.size, wrong=count)
    return None

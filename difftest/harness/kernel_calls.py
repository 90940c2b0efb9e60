"""A call of a kernel on a backend: what may not leave it, and what it does to its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.backends.base import Backend, Crashed, KernelCall, Outcome
from difftest.harness.verdict import Mismatch

Array = NDArray[Any]


def run_kernel(backend: Backend, call: KernelCall) -> Outcome:
    """Run a kernel; what would end the test quietly, such as ``pytest.skip``, is a crash of it.

    Raises
    ------
    KeyboardInterrupt : as the user sent it.
    """
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
        changed = (_bytes(before) != _bytes(now)).reshape(-1, width).any(axis=1)
        if changed.any():
            first = [int(one) for one in np.argwhere(changed.reshape(before.shape))[0]]
            return Mismatch(
                kind="inputs",
                output=None,
                message=f"the kernel overwrites its input {name}: {int(changed.sum())} of "
                f"{changed.size} elements, the first at {first}. {rule}",
                elements=changed.size,
                wrong=int(changed.sum()),
            )
        if any(one is now for one in written):
            return Mismatch(
                kind="inputs",
                output=None,
                message=f"the kernel writes to its input {name}, and what it writes is what was "
                f"there in this case. {rule}",
                elements=changed.size,
            )
    return None


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

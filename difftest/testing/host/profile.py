"""Profile a kernel from Python, such as in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.launchable import Launchable
from difftest.simulator.machine import MACHINES
from difftest.timing.advice import advise
from difftest.timing.compiler import Toolchain
from difftest.timing.prediction import predict
from difftest.timing.report import Report
from difftest.timing.views.profile import Profile


def profile(
    kernel: Launchable | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grid: tuple[int, ...] = (),
    machine: str | None = None,
    level: str | None = None,
    toolchain: str | None = None,
) -> Profile:
    """Predict how long a launch takes on a device. Nothing is measured.

    Parameters
    ----------
    kernel : a function decorated with the embedded ``nki.jit``.
    args, kwargs : its arguments; NumPy arrays become tensors in HBM.
    grid : the SPMD grid, as in ``kernel[4, 2]``.
    machine : "trn1", "trn2" or "trn3"; None means the kernel's own. "trn2" has timing data.
    level : the level of NKI, "0.3" to "0.7"; None means the kernel's own.
    toolchain : the compiler, a value of ``difftest profile --toolchain``; None means the usual one
        of the kernel's dialect.

    Returns
    -------
    The profile: ``print`` shows it as text, and a notebook displays it.

    Raises
    ------
    NkiError : the kernel breaks a rule of NKI or of the hardware.
    ValueError : the kernel issued no instruction, or ``toolchain`` is unknown.
    KeyError : there is no such machine.
    UnknownCostError : there is no timing data for the machine.
    """
    target = getattr(kernel, "machine", TRN2) if machine is None else MACHINES[machine]
    result = launch(kernel, args, kwargs, grid=grid, machine=target, level=level)
    compiler = None if toolchain is None else Toolchain(toolchain)
    prediction = predict(result.trace, target, dge=compiler)
    advice = advise(prediction.schedule)
    return Profile(Report(prediction), advice, result.trace, target)

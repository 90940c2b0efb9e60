"""How an error came about, in lines for people: from what the exact run of a case has noted."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np

from difftest.harness.rounding import float_info, is_float
from difftest.harness.verdict import Inconclusive, Mismatch, Verdict
from difftest.simulator.exact.contract import RUNNING_SUM

if TYPE_CHECKING:
    from difftest.analysis.finding import Finding
    from difftest.harness.questions import Reference
    from difftest.simulator.errors import Location
    from difftest.simulator.exact.losses import Loss
    from difftest.simulator.exact.run import ExactRun


def explained(verdict: Mismatch, exact: ExactRun) -> tuple[str, ...]:
    """What is known of a wrong output's rounding errors, the most telling first.

    Of a wrong algorithm they are nothing to know, but where a doubt lies.
    """
    over = [_overflow(loss) for loss in exact.losses if loss.overflow is not None]
    lines = [
        f"{name} is rounded into {dtype}{_at(location)}: no input or output has that dtype"
        if name != RUNNING_SUM
        else f"{name} is rounded into {dtype} again and again{_at(location)}"
        for name, location, dtype in exact.narrowed
    ]
    if verdict.question != "algorithm":
        lost = [loss for loss in exact.losses if loss.happened > 0]
        if over:
            lines.insert(0, over[0])
        elif lost:
            lines.insert(0, _lost(lost[0]))
        allowed = sorted(exact.losses, key=lambda loss: -loss.allowed)
        if allowed and allowed[0].allowed > 0:
            lines.append(_allowed(allowed[0]))
        lines += [_loss(loss) for loss in lost[1:]]
    return (*doubts_of(exact), *lines)


def doubts_of(exact: ExactRun) -> tuple[str, ...]:
    """Where an exact run has no meaning or a rounded value has decided, and what follows."""
    use = "both questions are asked as one"
    if not exact.has_meaning:
        use = "the bound that follows from the spec alone is used"
    return tuple(f"{doubt.reason}{_at(doubt.location)}: {use}" for doubt in exact.doubts)


def of_data(verdict: Verdict, reference: Reference | Exception) -> str:
    """Whether a verdict is one on data too large for the reference, in words; else empty."""
    if isinstance(verdict, Mismatch):
        asked = verdict.kind in ("nan", "infinity") and verdict.question != "algorithm"
    else:
        asked = isinstance(verdict, Inconclusive) and verdict.nonfinite > 0
    if not asked or isinstance(reference, Exception):
        return ""
    if not all(np.isfinite(one.astype(np.float64)).all() for one in reference.inputs.values()):
        return ""
    for index, value in enumerate(reference.values):
        dtype = reference.dtype_of(index)
        largest = float(float_info(dtype).max) if is_float(dtype) else math.inf
        if (np.abs(value) > largest).any():
            return (
                f"the data do it: the inputs are finite, and the reference is beyond {dtype}'s "
                f"{largest:.2g}; give the inputs data= whose results it holds"
            )
    return ""


def excuses(reference: Reference | Exception, finding: Finding) -> bool:
    """Whether the reference wants what was found: NaN or infinities in outputs of their dtypes."""
    if finding.id not in ("nan-made", "infinity-made") or isinstance(reference, Exception):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return not all(
            np.isfinite(values.astype(reference.dtype_of(index)).astype(np.float64)).all()
            for index, values in enumerate(reference.values)
        )


def _overflow(loss: Loss) -> str:
    over = loss.overflow
    assert over is not None
    argument = "" if over.argument is None else f" of {over.argument:.6g}"
    return (
        f"{loss.name} overflows {over.tensor}{_at(loss.location)}: it comes to {over.value:.3g}"
        f"{argument}, and the largest is {over.largest:.2g}"
    )


def _lost(loss: Loss) -> str:
    return (
        f"{loss.name} lost most digits{_at(loss.location)}: "
        f"{loss.happened:.2g} of its largest value is error"
    )


def _allowed(loss: Loss) -> str:
    terms = f", of {loss.terms} terms" if loss.terms else ""
    return (
        f"{loss.name} adds most to the bound{_at(loss.location)}: "
        f"{loss.allowed:.2g} of its largest value, {loss.size:.3g}{terms}, in {loss.times} "
        f"{'run' if loss.times == 1 else 'runs'}"
    )


def _loss(loss: Loss) -> str:
    return (
        f"{loss.name}{_at(loss.location)}: error {loss.happened:.2g}, bound {loss.allowed:.2g} "
        f"of its largest value"
    )


def _at(location: Location | None) -> str:
    if location is None:
        return ""
    place = f"{os.path.basename(location.file)}:{location.line}"
    return f" at {place}" + (f" ({location.text})" if location.text else "")

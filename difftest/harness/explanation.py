"""How an error came about, in lines for people: from what the exact run of a case has noted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from difftest.harness.verdict import Mismatch
from difftest.simulator.exact.chains import RUNNING_SUM

if TYPE_CHECKING:
    from difftest.simulator.errors import Location
    from difftest.simulator.exact.losses import Loss
    from difftest.simulator.exact.run import ExactRun


def explained(verdict: Mismatch, exact: ExactRun) -> tuple[str, ...]:
    """What is known of a wrong output's rounding errors, the most telling first.

    Of a wrong algorithm they are nothing to know, but where a doubt lies.
    """
    lines = [
        f"{name} is rounded into {dtype}{_at(location)}: no input or output has that dtype"
        if name != RUNNING_SUM
        else f"{name} is rounded into {dtype} again and again{_at(location)}"
        for name, location, dtype in exact.narrowed
    ]
    if verdict.question != "algorithm":
        lost = [loss for loss in exact.losses if loss.happened > 0]
        if lost:
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
    text = location.text
    place = f"{os.path.basename(location.file)}:{location.line}"
    return f" at {place}" + (f" ({text})" if text else "")

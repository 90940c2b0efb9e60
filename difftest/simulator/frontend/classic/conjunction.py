"""``mask=a < b and c < d``: the ``and`` of two comparisons of indices, which AWS's examples write.

Python asks the first comparison whether it is true, and gives the second one. The bytecode behind
that question says where the second one is ready; there both are joined, as ``&`` would join them.
Source: ``test_nki_isa_nc_match_replace8.py`` of AWS's documentation at tag v2.26.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from difftest.simulator.frontend.classic.bytecode import instructions_of, kernel_frame

M = TypeVar("M")
_ASKS = ("TO_BOOL", "POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "JUMP_IF_FALSE_OR_POP")


class _Pending(NamedTuple):
    """A comparison that waits for the one behind its ``and``."""

    mask: Any
    frame: int
    """The id of the kernel's frame, which is alive while it waits."""
    ready: int
    """The offset of the instruction that comes when the other one is there."""


_waiting: list[_Pending] = []
"""At most one for each kernel that is running; the innermost last."""


def awaits_other(mask: Any) -> bool:
    """Whether a comparison that is asked for its truth is the left side of an ``and``.

    Then :func:`joined` will meet the right side.
    """
    frame = kernel_frame()
    code = instructions_of(frame.f_code)
    at = next((k for k, one in enumerate(code) if one.offset == frame.f_lasti), None)
    if at is None:
        return False
    copied = code[at - 1].opname == "COPY" or code[at].opname == "JUMP_IF_FALSE_OR_POP"
    if code[at].opname == "TO_BOOL":
        at += 1
    if not copied or code[at].opname not in _ASKS:
        return False
    ready = code[at].argval
    last = next((code[k - 1] for k, one in enumerate(code) if one.offset == ready), None)
    if last is None or last.opname != "COMPARE_OP":
        return False  # the right side is no comparison, or this is ``a < b < c``
    before = [one for one in _waiting if one.frame == id(frame)]
    for one in before:
        _waiting.remove(one)
        if one.ready == ready:  # the one before this in ``a and b and c``
            mask = one.mask & mask
    _waiting.append(_Pending(mask, id(frame), ready))
    return True


def joined(mask: M) -> M:
    """A comparison that was just made, joined with the one that waits for it, if one does."""
    if not _waiting:
        return mask
    frame = kernel_frame()
    pending = next((one for one in _waiting if one.frame == id(frame)), None)
    if pending is None:
        return mask
    behind = next(
        (one for one in instructions_of(frame.f_code) if one.offset > frame.f_lasti), None
    )
    if behind is None or behind.offset != pending.ready:
        if behind is not None and behind.offset > pending.ready:
            _waiting.remove(pending)  # the kernel went another way
        return mask
    _waiting.remove(pending)
    result: M = pending.mask & mask
    return result

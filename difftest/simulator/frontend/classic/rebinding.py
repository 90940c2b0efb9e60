"""Errors of memories and shapes behind which a name stands that the body of a loop binds anew.

NKI's compiler reads a loop's body once: a name that the body reads before it binds it anew is what
it was before the loop. Python runs the body, and from the second iteration on the name is what the
iteration before made. Which of both a kernel means cannot be told, so it runs as Python has it; an
error that follows says so.
"""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Iterator
from types import FrameType, TracebackType

from difftest.simulator.errors import BufferError, ShapeError, is_inside
from difftest.simulator.frontend.classic.bytecode import instructions_of


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Name in an error the name that was bound anew before it, if there is one."""
    try:
        yield
    except (BufferError, ShapeError) as error:
        name = _bound_anew(*_innermost(error.__traceback__))
        if name:
            error.happened = (
                f"{name}, which the loop's body binds anew, is what the iteration before made, and "
                + error.happened
            )
            error.remedy = (
                f"give the new value another name than {name}, or write it into a tile that was "
                f"made before the loop: {name}[...] = ..."
            )
        raise


def _innermost(traceback: TracebackType | None) -> tuple[FrameType | None, int]:
    """The kernel's frame from which the error came, and the offset at which it stood."""
    frame, at = None, 0
    while traceback is not None:
        if not is_inside(traceback.tb_frame.f_code):
            frame, at = traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next
    return frame, at


def _bound_anew(frame: FrameType | None, at: int) -> str | None:
    """A name that the statement at an offset reads, and a loop around it binds further down."""
    if frame is None:
        return None
    code = instructions_of(frame.f_code)
    parameters = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    for number, loop in enumerate(code):
        if loop.opname != "FOR_ITER" or not loop.offset < at < loop.argval:
            continue
        turn = frame.f_locals.get(next(iter(_stored(code[number + 1])), ""))
        if not isinstance(turn, int) or turn < 1:
            continue  # the first iteration
        before = {name for one in code[:number] for name in _stored(one)} | {*parameters}
        below = [one for one in code if at < one.offset < loop.argval]
        anew = before & {name for one in below for name in _stored(one)}
        names = [name for name in _read(code, at) if name in anew]
        if names:
            return names[0]
    return None


def _stored(one: dis.Instruction) -> tuple[str, ...]:
    if not one.opname.startswith("STORE_FAST"):
        return ()
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    return names[:1] if one.opname == "STORE_FAST_LOAD_FAST" else names


def _read(code: tuple[dis.Instruction, ...], at: int) -> list[str]:
    """The local names that the statement at an offset has read so far."""
    names: list[str] = []
    for one in code:
        if one.offset > at:
            break
        if one.opname.startswith("STORE_") or one.opname in ("POP_TOP", "FOR_ITER"):
            names = []
        if one.opname.startswith("LOAD_FAST"):
            names += one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if one.opname == "STORE_FAST_LOAD_FAST":
            names.append(one.argval[1])
    return names

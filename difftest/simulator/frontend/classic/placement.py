"""Direct allocation of a whole kernel: what it may not mix, and who is told to ignore it.

Source: ``nki_direct_allocation_guide.rst`` and ``nki.compiler`` at tag v2.26.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.simulator.core import Core
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.kernel import as_kernel
from difftest.simulator.strictness import note

_FORCED = "__difftest_force_auto_alloc__"


def force_auto_alloc(kernel: Any) -> Any:
    """The kernel, marked: its own placements are ignored.

    Raises
    ------
    KernelError : it is no function.
    """
    try:
        setattr(as_kernel(kernel).function, _FORCED, True)
    except (AttributeError, TypeError):  # a class, or what is written in C
        raise KernelError(
            "a kernel is a function",
            happened="ncc.force_auto_alloc got something else than a kernel",
            received=f"{kernel!r:.80}",
        ) from None
    return kernel


def forces_auto_alloc(function: Callable[..., Any]) -> bool:
    """Whether a kernel's function was marked so."""
    return bool(getattr(function, _FORCED, False))


def note_mixed(core: Core) -> None:
    """Note a kernel that places some of its tensors and leaves others to the compiler.

    AWS's compiler refuses it: what it places itself would collide with the rest.
    """
    used = [
        one
        for one in core.trace.allocations
        if not one.space.is_hbm and one.first >= 0 and not one.is_temporary
    ]
    placed = [one for one in used if one.areas]
    left = [one for one in used if not one.areas]
    if not placed or not left:
        return
    error = KernelError(
        "a kernel that places a tensor places all that it has on chip",
        happened=f"{len(placed)} tensors were placed by the kernel, {len(left)} by the compiler",
        received=f"{placed[0]} was placed, {left[0]} was not",
        remedy="give it buffer=ncc.sbuf.alloc(...) too, and assign results to such tensors; or "
        "decorate the kernel with ncc.force_auto_alloc",
        location=left[0].location,
    )
    note(error)

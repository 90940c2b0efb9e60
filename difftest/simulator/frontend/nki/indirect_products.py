"""Tensor indirection of the matrix products, whose offsets are in groups of 32 partitions.

Source: "Tensor indirection" of the stubs ``nisa.nc_matmul`` and ``nisa.nc_matmul_mx`` at v2.32.0.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.errors import KernelError, kernel_location, warn
from difftest.simulator.frontend.nki.tensor import IndirectTensor


class IndirectionWarning(UserWarning):
    """AWS's pages leave open whether an operand may be indirect."""


def for_products(name: str, operands: tuple[Any, ...], *, tiles: bool) -> tuple[Any, ...]:
    """The operands, ``dst`` first, of which indirect ones have their offsets in groups of 32.

    Raises
    ------
    KernelError : one is indirect, and the product is of a tile of the PE array (``tiles``).
    """
    indirect = [one for one in operands if isinstance(one, IndirectTensor)]
    if indirect and tiles:
        raise KernelError(
            f"{name} with tensor indirection takes no PE tile",
            happened=f"{name} got an indirect operand beside tile_position or tile_size",
            received=repr(indirect[0]),
        )
    dst = operands[0]
    if isinstance(dst, IndirectTensor) and dst.dtype == FLOAT32:
        warn(
            IndirectionWarning(
                f"{name} scatters into float32 ({kernel_location()}): AWS's page lets dst be "
                "indirect, and names float16, bfloat16 and float8 as the dtypes of indirect "
                "operands"
            )
        )
    return tuple(one.grouped() if isinstance(one, IndirectTensor) else one for one in operands)


def check_pair(data: Any, scale: Any, role: str) -> None:
    """Raise unless an MX operand and its scales are indirect by the same index, or neither is.

    Raises
    ------
    KernelError : they are not.
    """
    indirect = [isinstance(one, IndirectTensor) for one in (data, scale)]
    if not any(indirect):
        return
    if all(indirect) and _place(data) == _place(scale):
        return
    raise KernelError(
        f"nc_matmul_mx takes {role} and its scales indirect by one index, or neither",
        happened=f"nc_matmul_mx got {role} and {role}_scale by other indices, or one without",
        received=f"{role} = {data!r}, {role}_scale = {scale!r}",
    )


def _place(view: IndirectTensor) -> tuple[Any, ...]:
    index = view.index
    return index.storage.allocation.id, index.pattern, len(view.places)

"""Arguments of earlier levels that public kernels still have, as what is written today.

The levels that have them are in :mod:`difftest.simulator.frontend.nki.levels`. Source: the
migration guide at v2.32.0, "Migrating from NKI 0.2.0 to NKI 0.3.0".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from difftest.simulator.dtypes import as_nki_dtype
from difftest.simulator.frontend.arguments import same_dtype
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.levels import arguments_of, check_level

_DMA = constants.dma_engine


def _copied(dtype: Any, dst: Any) -> dict[str, Any]:
    """What ``dtype=`` said of a copy into a dst: no more than the dst does."""
    same_dtype(as_nki_dtype(dtype), dst, "nisa.tensor_copy")
    return {}


READ_AS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "nisa.dma_copy(unique_indices)": lambda value, dst: {},
    "nisa.register_move(imm)": lambda value, dst: {"src": value},
    "nisa.sendrecv(use_gpsimd_dma)": lambda value, dst: {
        "dma_engine": _DMA.gpsimd_dma if value else _DMA.dma
    },
    "nl.NkiTensor.reshape(new_shape)": lambda value, dst: {"shape": value},
    "nisa.tensor_copy(dtype)": _copied,
    "ncc.collective_permute_implicit_current_processing_rank_id(num_channels)": (
        lambda value, dst: {}
    ),
}
"""By its row: the arguments that one which has ended stands for, beside the call's dst."""


def todays(
    function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Keyword arguments of an earlier level as today's; None if none of them has ended.

    Raises
    ------
    KernelError : the launch's level does not have such an argument; without a level it warns.
    """
    ended = {
        argument: row
        for argument, row in arguments_of(function).items()
        if argument in kwargs and row in READ_AS
    }
    if not ended:
        return None
    result = {name: value for name, value in kwargs.items() if name not in ended}
    for argument, row in ended.items():
        check_level(row)
        result |= READ_AS[row](kwargs[argument], args[0] if args else kwargs.get("dst"))
    return result

"""The levels of NKI: since which one a name, an argument or a method exists, and until which.

A launch takes a level (``launch(..., level="0.5")``): what other levels alone have raises then.
Without one all exists, and what has ended warns. Source: the stubs ``nki/api/nki/*/__init__.py``
of the documentation at v2.28.1 (NKI 0.2), v2.29.1 (0.3), v2.30.0 (0.4), v2.31.1 (0.5) and v2.32.0
(0.6), one against the next, with the release notes and the migration guide at v2.32.0; rows of 0.7
as the pages of v2.33 say.
"""

from __future__ import annotations

from typing import NamedTuple

from difftest.choices import LEVELS
from difftest.simulator.core import current, is_running
from difftest.simulator.errors import KernelError, Location, kernel_location, warn
from difftest.simulator.index import as_choice


class LevelError(KernelError, AttributeError):
    """A kernel uses what its level of NKI does not have; ``hasattr`` and ``getattr`` may ask."""


class LevelWarning(UserWarning):
    """A kernel uses what the newest level of NKI does not have."""


class Lifetime(NamedTuple):
    """The levels that have a thing: from ``since`` up to, and without, ``ended``."""

    since: str
    ended: str | None
    instead: str


_ORDER = ("0.2", *LEVELS)

_COLLECTIVES = (
    *("all_gather", "all_reduce", "all_to_all", "all_to_all_v", "reduce_scatter"),
    *("collective_permute", "collective_permute_implicit", "collective_permute_implicit_reduce"),
)
_PROCESSING = "collective_permute_implicit_current_processing_rank_id"
_ROWS: dict[tuple[str, str | None], dict[str, str]] = {
    ("0.2", "0.3"): {  # idioms of 0.2 that public code still has, and what is written since 0.3
        "nl.par_dim": "leave it out: the first dimension is the partitions'",
        "a buffer named by a string": "write nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm",
        "buffer=None": "leave buffer out, or write nl.sbuf",
        "a float as nisa.memset's value for integers": "write an integer",
        "a number for a member of an enumeration": "write the member, such as nisa.oob_mode.skip",
        "nisa.affine_select with offset third": "write offset=",
        "nisa.dma_copy(dst_rmw_op)": "nisa.dma_compute",
        "nisa.dma_copy(unique_indices)": "leave it out; nisa.dma_compute has it",
        "nisa.register_move(imm)": "write src=",
        "nisa.tensor_copy(dtype)": "leave it out: dst has its dtype",
        "nisa.sendrecv(use_gpsimd_dma)": "write dma_engine=nisa.dma_engine.gpsimd_dma",
        f"ncc.{_PROCESSING}(num_channels)": "leave it out, and pass channel_ids to "
        "ncc.collective_permute_implicit",
        "nki.jit with platform_target": "NEURON_PLATFORM_TARGET_OVERRIDE, or launch with machine=",
    },
    ("0.2", "0.4"): {
        "nisa.tensor_copy_dynamic_dst": "nisa.tensor_copy with dst.ap(..., scalar_offset=...)",
        "nisa.tensor_copy_dynamic_src": "nisa.tensor_copy with src.ap(..., scalar_offset=...)",
    },
    ("0.2", "0.5"): {
        "nl.NkiTensor.reshape(new_shape)": "write shape=",
        "nl.rsqrt of a tile in PSUM": "nisa.activation(op=nl.rsqrt)",
    },
    ("0.2", "0.7"): {"nl.dynamic_range": "nl.fori_loop", "while with a register": "nl.while_loop"},
    ("0.4", None): {
        "nl.abs_max": "nl.maximum of nl.abs of both",
        "nl.abs_min": "nl.minimum of nl.abs of both",
        "nl.bypass": "an instruction with fewer operators",
        "nl.prelu": "nl.relu, and nisa.tensor_scalar for the rest",
        "nl.tile_size.psum_bank_fmax": "nl.tile_size.psum_fmax",
        "nl.tile_size.psum_bank_fmax_bytes": "nl.tile_size.psum_fmax, times 4",
        "nl.tile_size.sbuf_fmax": "nl.tile_size.total_available_sbuf_size, divided by 4",
        "nl.tile_size.sbuf_fmax_bytes": "nl.tile_size.total_available_sbuf_size",
        "nl.tile_size.sbuf_size_bytes": "nl.tile_size.total_available_sbuf_size, of each partition",
        "nisa.activate2": "nisa.tensor_scalar, then nisa.activation",
        "nisa.dma_compute(oob_mode)": "offsets that stay inside",
        "nisa.dma_copy(priority)": "no priority",
        "nisa.dma_transpose(priority)": "no priority",
        "nisa.tensor_scalar_reduce(reduce_cmd)": "nisa.tensor_scalar, then nisa.tensor_reduce",
        "nisa.tensor_scalar_reduce(reduce_init)": "nisa.tensor_scalar, then nisa.tensor_reduce",
        **{f"ncc.{name}(priority)": "no priority" for name in _COLLECTIVES},
    },
    ("0.5", None): {
        "nl.average": "nl.add, and the quotient",
        "nl.float8_e8m0fnu": "nl.uint8",
        "nl.tile_size.psum_num_banks": "8",
        "nisa.get_nc_sub_version": "nisa.get_nc_version",
        **{
            f"nl.NkiTensor.{name}": "indexing, reshape or ap"
            for name in (
                *("broadcast", "expand_dim", "flatten_dims", "is_contiguous", "is_indirect"),
                *("permute", "rearrange", "reshape_dim", "select", "slice", "squeeze_dim"),
            )
        },
        "nl.NkiTensor.indirect": "nisa.dma_copy with ap(vector_offset=...)",
        "nl.NkiTensor.reinterpret_cast": "view",
        "nl.NkiTensor.vector_select": "ap(vector_offset=...)",
        **{f"ncc.{name}(name)": "no name" for name in (*_COLLECTIVES, _PROCESSING, "rank_id")},
    },
    ("0.6", None): {
        "nl.fori_loop": "nl.dynamic_range",
        "nl.while_loop": "a loop over Python integers",
        "nisa.tensor_scalar_reduce without reduce_res": "pass reduce_res",
        "nisa.tensor_scalar_reduce(reduce_res_negate)": "nisa.tensor_scalar by -1",
        "nisa.topk": "nisa.max8",
        "ncc.all_gather_v": "ncc.all_gather of the longest",
    },
    ("0.7", None): {
        "nl.alloc_blocks": "nl.ndarray, once for each tile",
        "nl.alloc_tiles": "nl.ndarray, once for each tile",
        "nl.NkiBlockGrid": "no annotation",
        "nl.NkiGrid": "no annotation",
        "nl.NkiTensor.data": "the tensor itself",
        "nl.NkiTileGrid": "no annotation",
        "nl.blocks": "loops over slices",
        "nl.int64": "nl.int32",
        "nl.tiles": "loops over slices",
        "nl.uint64": "nl.uint32",
        "nl.ndarray with an address in HBM": "no address",
        "nisa.scalar_load": "nisa.register_load",
        "nisa.scalar_store": "nisa.register_store",
    },
}
"""By the levels since and until which they exist, without the latter: names, and what to do."""

LIFETIMES = {
    name: Lifetime(*levels, instead)
    for levels, rows in _ROWS.items()
    for name, instead in rows.items()
}
"""What not all levels have: a name, ``name(argument)``, or a use in words."""


def arguments_of(function: str) -> dict[str, str]:
    """Those arguments of a function that have a row, and the row's name."""
    return {
        name[len(function) + 1 : -1]: name for name in LIFETIMES if name.startswith(f"{function}(")
    }


def check_level(name: str, location: Location | None = None) -> None:
    """Check a use that has a row against the level of the launch; outside one nothing is checked.

    ``location`` is the kernel's line, where that is not the one being executed.

    Raises
    ------
    LevelError : the level does not have it. Without a level, what has ended gives a
        :class:`LevelWarning`.
    """
    if not is_running():
        return
    since, ended, _ = LIFETIMES[name]
    level = current().level
    if level is None:
        if ended is not None:
            place = location or kernel_location()
            text = f"{name} ended with NKI {ended}: {_remedy(name)} ({place})"
            warn(LevelWarning(text), location)
        return
    at = _ORDER.index(level)
    if at < _ORDER.index(since) or (ended is not None and at >= _ORDER.index(ended)):
        raise LevelError(
            f"{name} exists " + (f"until NKI {ended}" if ended else f"since NKI {since}"),
            happened=f"{name} was used at level {level}, which does not have it",
            received=f"{name} at level {level}",
            remedy=f"{_remedy(name)}, or launch with another level=",
            location=location,
        )


def is_before(level: str) -> bool:
    """Whether the launch has a level, and one before this one."""
    own = current().level
    return own is not None and LEVELS.index(own) < LEVELS.index(level)


def check_name(name: str) -> None:
    """Check the access to a name, of which most have no row, as :func:`check_level` does."""
    if name in LIFETIMES:
        check_level(name)


def ending(name: str) -> str:
    """What became of a name that the simulator has at no level, to be added to an error's text."""
    row = LIFETIMES.get(name)
    return "" if row is None else f": it ended with NKI {row.ended}; {_remedy(name)}"


def _remedy(name: str) -> str:
    """What to do instead, as an imperative."""
    instead = LIFETIMES[name].instead
    verbs = ("write ", "leave ", "pass ")
    return instead if instead.startswith(verbs) else f"use {instead}"


def known_level(level: str | None) -> str | None:
    """``level`` itself, if it is one.

    Raises
    ------
    KernelError : there is no such level.
    """
    return None if level is None else as_choice(level, LEVELS, "a level of NKI")

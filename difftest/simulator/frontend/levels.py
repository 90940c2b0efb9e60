"""Wrap the functions of the API as kernels call them, and check the levels of NKI that have them.

Each function has the signature of AWS's stub (v2.32.0), and Python binds the arguments.
:func:`public` is the one wrapper. It records the calling frame in the launch, and checks the table
of levels. It converts arguments of earlier levels to current ones (migration guide at v2.32.0,
"Migrating from NKI 0.2.0 to NKI 0.3.0"). Invalid arguments raise the simulator's own error.

A launch accepts a level (``launch(..., level="0.5")``). Names that the level lacks then raise.
Without a level, all names exist, and ended ones warn. Source: the stubs
``nki/api/nki/*/__init__.py`` of the documentation at v2.28.1 (NKI 0.2), v2.29.1 (0.3), v2.30.0
(0.4), v2.31.1 (0.5) and v2.32.0 (0.6), compared in sequence, with the release notes and the
migration guide at v2.32.0. Rows of 0.7 follow the pages of v2.33.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from difftest.simulator.core import current, is_running
from difftest.simulator.dtypes import as_nki_dtype
from difftest.simulator.errors import (
    KernelError,
    Location,
    SignatureError,
    kernel_location,
    warn,
)
from difftest.simulator.frontend.arguments import fits, same_dtype
from difftest.simulator.frontend.dispatch import entering
from difftest.simulator.index import as_choice
from difftest.support.choices import LEVELS, RELEASES


class LevelError(KernelError, AttributeError):
    """A kernel uses a name that its level of NKI lacks.

    ``hasattr`` and ``getattr`` work as usual.
    """


class LevelWarning(UserWarning):
    """A kernel uses a name that the newest level of NKI lacks."""


class Lifetime(NamedTuple):
    """The levels that have a feature: from ``since`` up to ``ended``, exclusive."""

    since: str
    ended: str | None
    instead: str


_ORDER = tuple(RELEASES)

_COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "reduce_scatter",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_reduce",
)
_PROCESSING = "collective_permute_implicit_current_processing_rank_id"
_ROWS: dict[tuple[str, str | None], dict[str, str]] = {
    # idioms of 0.2 that public code still has, and their replacements since 0.3
    ("0.2", "0.3"): {
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
    ("0.2", "0.7"): {
        "nl.dynamic_range": "nl.fori_loop",
        "while with a register": "nl.while_loop",
    },
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
                "broadcast",
                "expand_dim",
                "flatten_dims",
                "is_contiguous",
                "is_indirect",
                "permute",
                "rearrange",
                "reshape_dim",
                "select",
                "slice",
                "squeeze_dim",
            )
        },
        "nl.NkiTensor.indirect": "nisa.dma_copy with ap(vector_offset=...)",
        "nl.NkiTensor.reinterpret_cast": "view",
        "nl.NkiTensor.vector_select": "ap(vector_offset=...)",
        **{
            f"ncc.{name}(name)": "no name"
            for name in (*_COLLECTIVES, _PROCESSING, "rank_id")
        },
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
        "depends_on of a kind": "leave kind out",
        "nisa.scalar_load": "nisa.register_load",
        "nisa.scalar_store": "nisa.register_store",
    },
}
"""By the first level and the level of the end, exclusive: names, and their replacements."""

LIFETIMES = {
    name: Lifetime(*levels, instead)
    for levels, rows in _ROWS.items()
    for name, instead in rows.items()
}
"""Features that some levels lack: a name, ``name(argument)``, or a use in words."""
GONE = {
    "nl.mgrid": (
        "there are no index grids",
        "index with slices, `.ap(...)` or `.permute(...)`",
    ),
    "nl.arange": ("there are no index tensors", "index with slices or `.ap(...)`"),
    "nl.loop_reduce": (
        "there is no loop_reduce",
        "accumulate in PSUM, or add in a loop",
    ),
    "nl.atomic_rmw": ("there is no atomic_rmw", "use nisa.dma_compute"),
    "nl.par_dim": (
        "the first dimension of a tile is its partitions; there are no block dimensions",
        "leave par_dim out, and keep blocks in a list or behind the partitions",
    ),
    "nki.compiler": ("nki.compiler is gone", "leave it out"),
    "nki.baremetal": ("nki.baremetal is gone", "use @nki.jit"),
    "nki.benchmark": (
        "nki.benchmark is gone",
        "use @nki.jit, and the profiler of the SDK",
    ),
    "nki.profile": ("nki.profile is gone", "use @nki.jit, and the profiler of the SDK"),
    "nki.simulate_kernel": ("simulate_kernel is gone", "use nki.simulate(kernel)(...)"),
    "nl.program_id": (
        "a launch has as many programs as a logical core has cores, 1 or 2",
        "loop in the kernel over the parts that the grid divided",
    ),
    "nl.spmd_dim": (
        "a launch has as many programs as a logical core has cores, 1 or 2",
        "launch kernel[2] for both cores, and loop in the kernel over the rest",
    ),
}
"""Names of the classic dialect without a mechanical replacement: the rule and the remedy."""


_ARGUMENTS: dict[str, dict[str, str]] = defaultdict(dict)
"""By function: its arguments that have a row, and the row's name."""
for _row in LIFETIMES:
    _function, _bracket, _argument = _row.partition("(")
    if _bracket:
        _ARGUMENTS[_function][_argument[:-1]] = _row


def check_level(name: str, location: Location | None = None) -> None:
    """Check a use that has a row against the level of the launch; outside a launch, do nothing.

    ``location`` is the kernel's line, if it differs from the current one.

    Raises
    ------
    LevelError : the level lacks it. Without a level, an ended feature gives a
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
            f"{name} exists "
            + (f"until NKI {ended}" if ended else f"since NKI {since}"),
            happened=f"{name} was used at level {level}, which does not have it",
            received=f"{name} at level {level}",
            remedy=f"{_remedy(name)}, or launch with another level=",
            location=location,
        )


def is_before(level: str) -> bool:
    """Return whether the launch has a level, and an earlier one than ``level``."""
    own = current().level
    return own is not None and LEVELS.index(own) < LEVELS.index(level)


def check_name(name: str) -> None:
    """Check the access to a name as :func:`check_level` does; most names have no row."""
    if name in LIFETIMES:
        check_level(name)


def ending(name: str) -> str:
    """Return why the simulator lacks a name at all levels, as an addition to an error's text."""
    if name in GONE:
        return ": {}; {}".format(*GONE[name])
    row = LIFETIMES.get(name)
    if row is None:
        return ""
    return f": it ended with NKI {row.ended}; {_remedy(name)}"


def _remedy(name: str) -> str:
    """Return the remedy, as an imperative."""
    instead = LIFETIMES[name].instead
    verbs = ("write ", "leave ", "pass ")
    if instead.startswith(verbs):
        return instead
    return f"use {instead}"


def known_level(level: str | None) -> str | None:
    """Return ``level`` if it exists, or None.

    Raises
    ------
    KernelError : there is no such level.
    """
    if level is None:
        return None
    return as_choice(level, LEVELS, "a level of NKI")


Function = TypeVar("Function", bound=Callable[..., Any])

Arguments = tuple[Any, ...]
API: dict[str, dict[str, Any]] = {"nl": {}, "nisa": {}, "ncc": {}}
"""The functions of each module of the API, by the module's short name in kernels."""
_ENDED = {
    "mask": "slice the operands: masks ended with NKI 0.2",
    "dtype": "give dst the dtype that you want: instructions write into an existing dst since "
    "NKI 0.2",
    "precise_schedule": "leave it out: loops are unrolled, and the compiler schedules",
}
"""Arguments that kernels of earlier levels pass, and their replacements (migration guide)."""
_WITH_DST = (
    "the first argument is dst, which the instruction writes, and it returns no tensor as classic "
    "NKI does: dst = nl.ndarray(shape, dtype, buffer={buffer}), then nisa.{name}(dst, ...)"
)
_PRODUCED_IN = dict.fromkeys(("nc_matmul", "nc_matmul_mx", "nc_transpose"), "nl.psum")
"""The memories of instructions' results; all others are in SBUF."""
_PREFIXES = {
    "isa": "nisa",
    "collectives": "ncc",
    "nki_kernel": "nki",
    **dict.fromkeys(("language", "tensor", "views"), "nl"),
}
"""A module of this package -> the short name of the API's module that has its functions.
For a class, the short name of the class.
"""
_CLASSES = {"Views": "NkiTensor"}
_PACKAGE = f"{__name__.rpartition('.')[0]}.nki"
"""The package with the functions of the dialect."""


def _copied(dtype: Any, dst: Any) -> dict[str, Any]:
    """Check ``dtype=`` of a copy against its dst, which makes it redundant."""
    same_dtype(as_nki_dtype(dtype), dst, "nisa.tensor_copy")
    return {}


READ_AS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "nisa.dma_copy(unique_indices)": lambda value, dst: {},
    "nisa.register_move(imm)": lambda value, dst: {"src": value},
    "nl.NkiTensor.reshape(new_shape)": lambda value, dst: {"shape": value},
    "nisa.tensor_copy(dtype)": _copied,
    "ncc.collective_permute_implicit_current_processing_rank_id(num_channels)": (
        lambda value, dst: {}
    ),
}
"""By row: a function of an ended argument and the call's dst; it returns current arguments."""


def _part_of(module: str) -> str:
    """Return the part of the dialect that a module is in: ``isa``, or its own name."""
    inside = module.removeprefix(f"{_PACKAGE}.")
    if inside == module:
        return module.rpartition(".")[2]
    return inside.partition(".")[0]


def public(function: Function, runs: Callable[..., Any] | None = None) -> Function:
    """Return ``function`` as kernels call it; if ``runs`` is given, that is called instead.

    Raises
    ------
    SignatureError : the result was called with arguments that do not fit the signature.
    """
    part = _part_of(function.__module__)
    owner, dot, last = function.__qualname__.rpartition(".")
    module = _PREFIXES.get(part, part)
    own = f"{_CLASSES.get(owner, owner)}{dot}{last}"
    name = f"{module}.{own}"  # the name in kernels: nisa.dma_copy, nl.NkiTensor.ap
    of_module = module in API and "." not in own
    run = function if runs is None else runs
    rows = _rows(name, function)

    def leveled(*args: Any, **kwargs: Any) -> Any:
        for argument, place, row in rows:
            if len(args) > place or argument in kwargs:
                check_level(row)
        return run(*args, **kwargs)

    called = leveled if rows else run
    refit = functools.partial(_refit, name, function)
    wrapper = functools.wraps(function)(entering(called, refit, "nki"))
    if of_module:
        API[module][own] = wrapper
    return cast(Function, wrapper)


def _refit(
    name: str,
    function: Callable[..., Any],
    error: TypeError,
    args: Arguments,
    kwargs: dict[str, Any],
) -> Any:
    """Replace ended arguments of the function ``name`` by current ones; raise for others."""
    signature = inspect.signature(function)
    if fits(signature, args, kwargs):
        raise error
    options = _current_arguments(name, args, kwargs)
    if options is None:
        raise _misfit(function.__name__, signature, error, args, kwargs) from None
    return args, options


def named(function: Callable[..., Any], name: str, summary: str) -> Callable[..., Any]:
    """Return a function of a table under its API name, by which instructions know operators."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    wrapper = public(function)
    wrapper.nki_name = name  # type: ignore[attr-defined]
    return wrapper


def api_of(package: ModuleType, module: str) -> dict[str, Any]:
    """Return the functions of an API module, which the parts of a package define."""
    for part in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{part.name}")
    return API[module]


def _rows(name: str, function: Callable[..., Any]) -> tuple[tuple[str, int, str], ...]:
    """Return the rows that a call must check: an argument, its position, and the row.

    The function's own row has the position -1, so that every call checks it.
    """
    rows = [(name, -1, name)] if name in LIFETIMES else []
    for argument, row in _ARGUMENTS.get(name, {}).items():
        parameters = list(inspect.signature(function).parameters)
        if argument in parameters:
            rows.append((argument, parameters.index(argument), row))
    return tuple(rows)


def _current_arguments(
    function: str, args: Arguments, kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Convert keyword arguments of an earlier level; None if no argument has ended."""
    rows = _ARGUMENTS.get(function, {}).items()
    ended = {name: row for name, row in rows if name in kwargs and LIFETIMES[row].ended}
    if not ended:
        return None
    result = {name: value for name, value in kwargs.items() if name not in ended}
    for argument, row in ended.items():
        check_level(row)
        if row not in READ_AS:
            return None
        result |= READ_AS[row](kwargs[argument], args[0] if args else kwargs.get("dst"))
    return result


def _misfit(
    name: str,
    signature: inspect.Signature,
    error: TypeError,
    args: Arguments,
    kwargs: Any,
) -> SignatureError:
    """Return the error of arguments that do not fit the signature."""
    extra = next(
        (argument for argument in kwargs if argument not in signature.parameters), None
    )
    remedies = [_ENDED[extra]] if extra in _ENDED else []
    if _lacks_dst(signature, args, kwargs):
        remedies.insert(
            0, _WITH_DST.format(buffer=_PRODUCED_IN.get(name, "nl.sbuf"), name=name)
        )
    given = [
        *(("", value) for value in args),
        *((f"{k}=", v) for k, v in kwargs.items()),
    ]
    return SignatureError(
        "a call takes the parameters that its function is documented with",
        happened=str(error),
        received=", ".join(
            f"{k}{getattr(v, '__name__', repr(v)):.60}" for k, v in given
        )
        or "no arguments",
        limit=f"{name}({', '.join(signature.parameters)})",
        remedy="; ".join(remedies) or None,
    )


def _lacks_dst(
    signature: inspect.Signature, args: Arguments, kwargs: Mapping[str, Any]
) -> bool:
    """Return whether the arguments fit with a ``dst`` before them, which classic calls lack."""
    kept = {name: value for name, value in kwargs.items() if name not in _ENDED}
    first = next(iter(signature.parameters), "")
    return first == "dst" and "dst" not in kept and fits(signature, (None, *args), kept)

"""``nki.isa``: the Tensor Engine, and what accumulates in PSUM."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import Core, current, entry
from difftest.simulator.descriptor import taped
from difftest.simulator.dtypes import BFLOAT16, BOOL, FLOAT32, TFLOAT32, is_float, name_of
from difftest.simulator.errors import DtypeError, kernel_location, not_modelled, warn
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.nki.calls import call, issue, placed
from difftest.simulator.frontend.nki.constants import (
    ISSUED,
    UNKNOWN,
    NkiInstruction,
    matmul_perf_mode,
    member_of,
)
from difftest.simulator.frontend.nki.constants import engine as engines
from difftest.simulator.frontend.nki.levels import is_before, public
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import gate, matmul, mx
from difftest.simulator.instructions.checks import need_tile
from difftest.simulator.instructions.record import Instruction, Issue
from difftest.simulator.misuses import SUM_WITHOUT_START
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_WIDE = (FLOAT32, TFLOAT32)
_NO_MODE = matmul_perf_mode.none
_WHOLE = ()


@public  # by hand: what it adds to is known by element, and of an indirect operand in groups
def nc_matmul(
    dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, accumulate=None, tile_position=(), tile_size=(),
    perf_mode=matmul_perf_mode.none, name=None,
):  # fmt: skip
    """``dst = stationary.T @ moving`` in PSUM, or ``dst +=`` where a matmul wrote before.

    From NeuronCore-v3 on, with ``is_transpose`` and an identity as ``moving``, it is
    ``nc_transpose`` of ``stationary``: bit by bit, NaN and infinities too (Trainium2 architecture
    guide).
    """
    if perf_mode is not _NO_MODE:
        perf_mode = member_of(matmul_perf_mode, perf_mode, "nc_matmul")
    operands, pe_tile = (dst, stationary, moving), _pe_tile(tile_position, tile_size)
    dst, stationary, moving = _grouped("nc_matmul", operands, tiles=any(pe_tile))
    if is_transpose and isinstance(moving, IndirectTensor):
        takes, got = "no indirect moving operand", "an indirect moving operand"
        raise not_taken("nc_matmul with is_transpose", takes, got, repr(moving))
    _check_dtypes(dst, stationary, moving, transposes=bool(is_transpose))
    if is_transpose and current().machine.nc_version >= 3 and _is_identity(stationary, moving):
        return issue(matmul.nc_transpose, dst, (stationary,), engine=Engine.TENSOR)
    options = (*pe_tile, perf_mode.name)
    return issue_product(matmul.nc_matmul, dst, (stationary, moving), accumulate, options)


@public  # by hand: as nc_matmul
def nc_matmul_mx(
    dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
    accumulate=None, name=None,
):  # fmt: skip
    """``dst = stationary.T @ moving`` of MX operands, or ``dst +=`` where a matmul wrote before."""
    _check_pair(stationary, stationary_scale, "stationary")
    _check_pair(moving, moving_scale, "moving")
    options = _pe_tile(tile_position, tile_size)
    accesses = (dst, stationary, moving, stationary_scale, moving_scale)
    dst, *operands = _grouped("nc_matmul_mx", accesses, tiles=any(options))
    return issue_product(mx.nc_matmul_mx, dst, tuple(operands), accumulate, options)


@call(mx.quantize_mx)
def quantize_mx(dst, src, dst_scale, name=None):
    """``dst`` = src over the scales of its groups, in packed float8; ``dst_scale`` = the scales."""
    if is_before("0.5"):
        what = "quantize_mx before NKI 0.5, whose scales were half as large"
        raise not_modelled(what, f"dst = {dst!r}")
    return locals()


@call(matmul.nc_transpose)
def nc_transpose(dst, data, engine=UNKNOWN, name=None):
    """``dst = data.T`` between partitions and the flattened free axes."""
    if isinstance(dst, Tile) and isinstance(data, Tile) and dst.dtype != data.dtype:
        error = DtypeError(
            "nc_transpose's dst has the dtype of its data",
            happened=f"nc_transpose was to cast {name_of(data.dtype)} to {name_of(dst.dtype)}",
            received=f"dst {name_of(dst.dtype)}, data {name_of(data.dtype)}",
            remedy="transpose into a tile of the data's dtype, then cast with nisa.tensor_copy",
        )
        wide = dst.dtype == FLOAT32 and dst._space is Space.PSUM and is_float(data.dtype)
        if not wide or engine is engines.vector:
            raise error
        note(error)  # what NKI 0.2 took, and what NeuronCore-v2's compiler asks for
    return locals()


def _pe_tile(position, size):
    """Where its part of the PE array begins and how large it is; ``()`` for all of the array."""
    options = (position, "tile_position"), (size, "tile_size")
    return tuple(
        () if numbers is None or numbers is _WHOLE else as_integers(numbers, name)
        for numbers, name in options
    )


def _check_dtypes(dst, stationary, moving, *, transposes):
    """float32 goes with float32 alone; dst is float32 (stub of nc_matmul, v2.32.0)."""
    if not all(isinstance(tile, Tile) for tile in (dst, stationary, moving)):
        return  # the record says what is wrong
    if (stationary.dtype in _WIDE) != (moving.dtype in _WIDE):
        takes = "float32 and tfloat32 with each other only"
        got = f"{name_of(stationary.dtype)} with {name_of(moving.dtype)}"
        remedy = "cast both operands to one dtype"
        raise not_taken("nc_matmul", takes, got, got, error=DtypeError, remedy=remedy)
    if dst.dtype is FLOAT32:
        return
    version = current().machine.nc_version
    allowed = {FLOAT32} | ({BFLOAT16} if version >= 4 else set())
    if transposes:
        allowed.add(stationary.dtype)
    if dst.dtype not in allowed:
        raise DtypeError(
            f"nc_matmul dst dtype must be float32 on gen{version}",
            happened=f"nc_matmul got a dst of {name_of(dst.dtype)}",
            received=f"dst = {dst!r}",
            limit=", ".join(sorted(name_of(dtype) for dtype in allowed)),
        )


def _is_identity(stationary, moving):
    """Whether ``moving`` is the identity that passes ``stationary`` through as it is."""
    if not (isinstance(stationary, Tile) and isinstance(moving, Tile)):
        return False
    size = stationary.shape[0]
    in_sbuf = moving._space is stationary._space is Space.SBUF
    if not in_sbuf or moving._tile_shape() != (size, size):
        return False
    return bool(np.array_equal(moving._engine_values(), np.eye(size)))


# -- which elements of PSUM a matmul wrote: what ``accumulate`` goes by ---------------------------
# ``accumulate=None`` overwrites where no matmul wrote since the tensor was made, or since another
# instruction wrote there, and adds elsewhere; True and False say it outright (stub of
# ``nisa.nc_matmul``, v2.32.0, "Accumulation mode"). Adding where no matmul wrote is undefined.


class AccumulationWarning(UserWarning):
    """A matmul adds to what another instruction wrote, which is undefined on trn1 and trn2."""


@entry("product")
def issue_product(
    core: Core,
    record: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    accumulate: Any,
    options: tuple[Any, ...],
) -> NkiInstruction:
    """Issue a product, and note that it wrote ``dst``."""
    adds = resolve(core, dst, accumulate) if isinstance(dst, Tile) else False
    if dst is None:
        need_tile(dst, "dst", record.name)
    inferred = (("inferred", True),) if accumulate is None else ()
    gate.run(core, placed(Issue(record, operands, (adds, *options), dst, said=inferred)))
    _mark(dst)
    return ISSUED


def resolve(core: Core, dst: Tile, accumulate: Any) -> bool | None:
    """Whether a matmul adds to ``dst``; None where it adds to some of its elements only."""
    if accumulate is not None and not isinstance(accumulate, (bool, np.bool_)):
        takes, got = "accumulate as True, False or None", f"accumulate={accumulate!r:.40}"
        raise not_taken("nc_matmul", takes, got, f"accumulate={accumulate!r:.60}")
    if accumulate is not None and not accumulate:
        return False
    products = dst._storage.products
    if products is None:
        if accumulate:
            _check_start(core, dst)
        return bool(accumulate)
    whole = dst._strided and dst._pattern is dst._storage.whole
    started = products if whole else dst._gather(products)
    if started.all():
        return True
    if accumulate:
        _check_start(core, dst)
        return True
    return None if started.any() else False


def _check_start(core: Core, dst: Tile) -> None:
    """Say what is wrong with adding where no matmul wrote."""
    if dst._fresh() is not None:
        raise SUM_WITHOUT_START(f"{dst!r}, of which elements were never written")
    if core.machine.nc_version < 4:
        warn(
            AccumulationWarning(
                f"nc_matmul adds to {dst!r}, which another instruction wrote: that is undefined "
                f"on NeuronCore-v2 and v3 ({kernel_location()}). Use accumulate=False for the "
                "first matmul, or leave accumulate out."
            )
        )


def _mark(dst: Any) -> None:
    """Note that a matmul wrote ``dst``."""
    storage = dst._storage
    if storage.products is None:
        storage.products = np.zeros(storage.size, BOOL)
    if dst._strided and dst._pattern is storage.whole:
        storage.products[...] = True
    else:
        dst._scatter(storage.products, True)


mark = taped("mark")(_mark)


# -- tensor indirection, whose offsets are in groups of 32 partitions (stubs at v2.32.0) -----------


class IndirectionWarning(UserWarning):
    """AWS's pages leave open whether an operand may be indirect."""


def _grouped(name: str, operands: tuple[Any, ...], *, tiles: bool) -> tuple[Any, ...]:
    """The operands, ``dst`` first, of which indirect ones have their offsets in groups of 32.

    Raises
    ------
    KernelError : one is indirect, and the product is of a tile of the PE array (``tiles``).
    """
    indirect = [one for one in operands if isinstance(one, IndirectTensor)]
    if indirect and tiles:
        takes, got = "no PE tile with an indirect operand", "tile_position or tile_size beside one"
        raise not_taken(name, takes, got, repr(indirect[0]))
    dst = operands[0]
    if isinstance(dst, IndirectTensor) and dst.dtype == FLOAT32:
        warn(
            IndirectionWarning(
                f"{name} scatters into float32 ({kernel_location()}): AWS's page lets dst be "
                "indirect, and names float16, bfloat16 and float8 as the dtypes of indirect "
                "operands"
            )
        )
    if not indirect:
        return operands
    return tuple(one._grouped() if isinstance(one, IndirectTensor) else one for one in operands)


def _check_pair(data: Any, scale: Any, role: str) -> None:
    """Raise unless an MX operand and its scales are indirect by the same index, or neither is.

    Raises
    ------
    KernelError : they are not.
    """
    indirect = [isinstance(one, IndirectTensor) for one in (data, scale)]
    if not any(indirect):
        return
    if all(indirect) and _index(data) == _index(scale):
        return
    takes = f"{role} and its scales indirect by one index, or neither"
    got = f"{role} and {role}_scale by other indices, or one without"
    raise not_taken("nc_matmul_mx", takes, got, f"{role} = {data!r}, {role}_scale = {scale!r}")


def _index(view: IndirectTensor) -> tuple[Any, ...]:
    index = view._index
    return index._storage.allocation.id, index._pattern, len(view._places)

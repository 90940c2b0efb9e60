"""``nki.isa``: the Tensor Engine, and what accumulates in PSUM."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BFLOAT16, FLOAT32, TFLOAT32, is_float, name_of
from difftest.simulator.errors import DtypeError, KernelError, ShapeError
from difftest.simulator.frontend.nki import accumulation, constants
from difftest.simulator.frontend.nki import indirect_products as indirect
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of, member_of
from difftest.simulator.frontend.nki.isa.elementwise import UNKNOWN
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import matmul
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_PERF = constants.matmul_perf_mode
_WIDE = (FLOAT32, TFLOAT32)


def _check_dtypes(dst: Any, stationary: Any, moving: Any, *, transposes: bool) -> None:
    """float32 goes with float32 alone; dst is float32 (stub of nc_matmul, v2.32.0)."""
    if not all(isinstance(tile, Tile) for tile in (dst, stationary, moving)):
        return  # the record says what is wrong
    if (stationary.dtype in _WIDE) != (moving.dtype in _WIDE):
        raise DtypeError(
            "nc_matmul takes float32 and tfloat32 with each other only",
            happened=f"nc_matmul got {name_of(stationary.dtype)} with {name_of(moving.dtype)}",
            received=f"stationary {name_of(stationary.dtype)}, moving {name_of(moving.dtype)}",
            remedy="cast both operands to one dtype",
        )
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


def _is_identity(stationary: Any, moving: Any) -> bool:
    """Whether ``moving`` is the identity that passes ``stationary`` through as it is."""
    if not (isinstance(stationary, Tile) and isinstance(moving, Tile)):
        return False
    size = stationary.shape[0]
    in_sbuf = moving.space is stationary.space is Space.SBUF
    if not in_sbuf or moving.tile_shape() != (size, size):
        return False
    return bool(np.array_equal(moving.engine_values(), np.eye(size)))


def _check_tiling(position: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Tiles of the PE array as v2.32.0 has them; the record checks what all pages say.

    The stub contradicts itself on columns: its text has column tiles, its parameters none. They
    change no value, and are taken.
    """
    if len(position) != len(size) or not size:
        return
    sizes = current().machine.pe_tile_sizes
    if any(one not in sizes or at % one for at, one in zip(position, size, strict=True)):
        raise KernelError(
            "a tile of the PE array starts at a multiple of its size",
            happened=f"nc_matmul got the PE tile {position} of the size {size}",
            received=f"tile_position={position}, tile_size={size} on {current().machine.name}",
            limit=f"sizes of {', '.join(map(str, sizes))}",
        )


@public
def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: Any = _PERF.none,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = stationary.T @ moving`` in PSUM, or ``dst +=`` where a matmul wrote before.

    From NeuronCore-v3 on, with ``is_transpose`` and an identity as ``moving``, it is
    ``nc_transpose`` of ``stationary``: bit by bit, NaN and infinities too (Trainium2 architecture
    guide).
    """
    mode = member_of(_PERF, perf_mode, "nc_matmul").name
    dst, stationary, moving = indirect.for_products(
        "nc_matmul", (dst, stationary, moving), tiles=bool(tile_position or tile_size)
    )
    if is_transpose and isinstance(moving, IndirectTensor):
        raise KernelError(
            "nc_matmul that transposes takes no indirect moving operand",
            happened="nc_matmul got an indirect moving operand and is_transpose",
            received=repr(moving),
        )
    _check_dtypes(dst, stationary, moving, transposes=bool(is_transpose))
    if is_transpose and current().machine.nc_version >= 3 and _is_identity(stationary, moving):
        return issue(matmul.nc_transpose, dst, (stationary,), engine=Engine.TENSOR)
    position = as_integers(tile_position, "tile_position") if tile_position else ()
    size = as_integers(tile_size, "tile_size") if tile_size else ()
    _check_tiling(position, size)
    adds = accumulation.resolve(dst, accumulate) if isinstance(dst, Tile) else False
    done = issue(matmul.nc_matmul, dst, (stationary, moving), (adds, position, size, mode))
    accumulation.mark(dst, accumulate)
    return done


@public
def nc_transpose(
    dst: Any, data: Any, engine: Any = UNKNOWN, name: str | None = None
) -> NkiInstruction:
    """``dst = data.T`` between partitions and the flattened free axes."""
    chosen = engine_of(engine, "nc_transpose")
    if isinstance(dst, Tile) and isinstance(data, Tile):
        if dst.dtype != data.dtype:
            error = DtypeError(
                "nc_transpose's dst has the dtype of its data",
                happened=f"nc_transpose was to cast {name_of(data.dtype)} to {name_of(dst.dtype)}",
                received=f"dst {name_of(dst.dtype)}, data {name_of(data.dtype)}",
                remedy="transpose into a tile of the data's dtype, then cast with nisa.tensor_copy",
            )
            wide = dst.dtype == FLOAT32 and dst.space is Space.PSUM and is_float(data.dtype)
            if not wide or chosen is Engine.VECTOR:
                raise error
            note(error)  # what NKI 0.2 took, and what NeuronCore-v2's compiler asks for
        if chosen is Engine.UNKNOWN:
            by_tensor = data.space is Space.SBUF and dst.space is Space.PSUM
            chosen = Engine.TENSOR if by_tensor else Engine.VECTOR
        if chosen is Engine.TENSOR and dst.space is not Space.PSUM:
            raise ShapeError(
                "a transpose on the Tensor Engine writes PSUM",
                happened=f"a transpose on the Tensor Engine got dst in {dst.space.value}",
                received=f"dst = {dst!r}",
                limit="psum",
                remedy="give dst buffer=nl.psum, or use engine=nisa.engine.vector for up to "
                "32 x 32 elements",
            )
    return issue(matmul.nc_transpose, dst, (data,), engine=chosen)

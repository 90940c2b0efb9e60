"""What instructions do whose results are no function of their operands.

Other cores and ranks sent them, or they lie in registers and random states. As at the gate, what
nothing wrote is carried on, and one event is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.instructions.writing import write
from difftest.simulator.memory import NEVER
from difftest.simulator.recording import Part
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Kind, Origin


class Sent(NamedTuple):
    """What a tile held when it was sent.

    ``missing`` is what of it nothing had written, None if all was, with its origin; ``exact`` what
    it would be without rounding, None where that is the same.
    """

    values: Array
    missing: Array | None = None
    origin: Origin | None = None
    exact: Any = None
    src: Tile | None = None


def sent(src: Tile, sender: str) -> Sent:
    """What a tile holds now.

    Raises
    ------
    UnwrittenError : nothing of it was written.
    """
    missing = src.unwritten(NEVER)
    some = missing is not None and not missing.all()
    values = src.values(unwritten=some).copy()
    shadow = current().shadow
    origin = None if missing is None else src.origin(f"sent by {sender}")
    return Sent(values, missing, origin, None if shadow is None else shadow.sent(src), src)


def combined(given: Sequence[Sent], make: Callable[[list[Array], Any], Array], op: Any) -> Sent:
    """What ``make`` makes of several; where one of them misses an element, the result does."""
    values = make([one.values for one in given], op)
    origin = next((one.origin for one in given if one.missing is not None), None)
    if origin is None:
        return Sent(values)
    none = np.zeros(given[0].values.shape, np.bool_)
    planes = [none if one.missing is None else one.missing for one in given]
    return Sent(values, make(planes, np.logical_or), origin)


def take(dst: Tile, result: Sent) -> None:
    """Write what was sent."""
    write(dst, result.values)
    if result.missing is not None and result.origin is not None:
        dst.forget_written(result.missing, result.origin)


def note(
    name: str,
    engine: Engine,
    *,
    writes: Iterable[tuple[str, Tile]] = (),
    reads: Iterable[tuple[str, Tile]] = (),
    partial: Sequence[Part] = (),
    **options: Any,
) -> None:
    """Tell the launch which tiles were written and read, each with its role, and the options."""
    written, read = list(writes), list(reads)
    roles = [role for role, _ in (*written, *read)]
    tiles, sources = [tile for _, tile in written], [tile for _, tile in read]
    kind = Kind(name, engine, options=options)
    current().emit(kind, tiles, sources, roles, partial=partial)

"""Which instruction of a trace wrote an element of an output last."""

from __future__ import annotations

import numpy as np

from difftest.simulator.trace import Allocation, Event, Region, Trace


def writer_of(
    trace: Trace, output: int, shape: tuple[int, ...], index: tuple[int, ...]
) -> Event | None:
    """The last instruction that wrote an element of an output, which has a number and a shape.

    None if no instruction wrote it, or it cannot be told.
    """
    tensor = _tensor(trace, output, shape)
    if tensor is None:
        return None
    element = int(np.ravel_multi_index(index, shape)) if shape else 0
    for event in reversed(trace.events):
        for region in event.writes:
            if region.allocation is tensor and _touches(region, element):
                return event
    return None


def _tensor(trace: Trace, output: int, shape: tuple[int, ...]) -> Allocation | None:
    """The tensor of an output: of those of its shape, or the one of its number."""
    given = [one for one in trace.allocations if one.output is not None]
    alike = [one for one in given if one.shape == shape]
    if len(alike) == 1:
        return alike[0]
    fits = output < len(given) and given[output].shape == shape
    return given[output] if fits else None


def _touches(region: Region, element: int) -> bool:
    if region.view is not None:
        return False
    if region.places is not None:
        return bool((region.places.elements == element).any())
    low, high = region.pattern.extent()
    return low <= element <= high and bool((region.pattern.elements() == element).any())

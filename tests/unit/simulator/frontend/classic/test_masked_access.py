"""Masks over accesses that leave their tensor, against Python's own loops over the elements.

The fast mode and the plain one share the indices, the masks and the rejections: no comparison of
the two can find a fault there. Here each access is stated a third time, element by element.
"""

import functools
import itertools
import random

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import OracleError, OutOfBoundsError, ShapeError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.partial import PartialTile
from tests.every import every
from tests.unit.simulator.on_tiles import written

DRAWS = 60
ON_CHIP = (
    "copy",
    "add",
    "reduce",
    "assign",
    "add in place",
    "store of a part",
    "store from PSUM",
)
WRITING = ("store", "dma_copy to", "assign", "add in place")
"""Kinds whose access is written to."""


def grid_of(kind):
    """Return the walk of an instruction: partitions, and one or two free axes.

    On chip an index walks the partitions or free axes: a region beyond a box takes two of these.
    """
    return (4, 4, 3) if kind in ON_CHIP else (6, 5)


class Affine:
    """``start + sum(steps[k] * index[k])``, as an index of NKI and as a number of Python's."""

    def __init__(self, start, steps):
        self.start = start
        self.steps = steps

    def __repr__(self):
        return f"{self.start} + {self.steps}"

    def expression(self, grid):
        total = self.start
        for step, index in zip(
            self.steps, nl.mgrid[tuple(map(slice, grid))], strict=True
        ):
            total = index * step + total
        return total

    def at(self, place):
        return self.start + sum(
            step * k for step, k in zip(self.steps, place, strict=True)
        )


class Access:
    """A drawn access: an index for each dimension of a tensor, and a mask of comparisons."""

    def __init__(self, kind, seed):
        draw = random.Random(f"{kind} {seed}")
        self.grid = grid_of(kind)
        last = tuple(size - 1 for size in self.grid)
        self.indices = self._on_chip(draw) if kind in ON_CHIP else self._in_hbm(draw)
        self.shape = [
            max(index.at(last) + 1 - draw.choice([0, 0, 1, 2]), 1)
            for index in self.indices
        ]
        self.least = []
        """Affine expressions that the mask keeps at 0 or more."""
        for index, size in zip(self.indices, self.shape, strict=True):
            if index.start < 0:
                self.least.append(index)
            if index.at(last) >= size:
                over = Affine(
                    size - 1 - index.start, tuple(-step for step in index.steps)
                )
                self.least.append(over)
        if self.least and not draw.randrange(4):
            self.least.remove(draw.choice(self.least))
        if not self.least or not draw.randrange(2):
            steps = (draw.choice([-1, 0, 1]), *(1 for _ in self.grid[1:]))
            self.least.append(Affine(draw.randint(0, 4), steps))

    def _on_chip(self, draw):
        """Draw an index of the partitions, and one or two of the free axes."""
        indices = [Affine(draw.randint(-2, 2), (1, 0, 0))]
        for _ in range(draw.choice([1, 2])):
            steps = (0, draw.choice([0, 1, 2]), draw.choice([0, 1]))
            indices.append(Affine(draw.randint(-2, 2), steps))
        return indices

    def _in_hbm(self, draw):
        """Draw indices of one to three dimensions."""
        indices = [
            Affine(
                draw.randint(-2, 2), (draw.choice([1, 2, 5]), draw.choice([0, 1, 2]))
            )
        ]
        for _ in range(draw.choice([0, 1, 2])):
            steps = (draw.choice([0, 1]), draw.choice([0, 1, 1, 2]))
            indices.append(Affine(draw.randint(-2, 2), steps))
        return indices

    def __repr__(self):
        return f"x {self.shape} [{self.indices}] where {self.least} >= 0"

    def key(self):
        return tuple(index.expression(self.grid) for index in self.indices)

    def mask(self):
        total = True
        for term in self.least:
            total = (term.expression(self.grid) >= 0) & total
        return total

    def kept(self):
        """Return the places of the grid that the mask keeps, and what each names of the tensor."""
        named = {}
        for place in itertools.product(*map(range, self.grid)):
            if all(term.at(place) >= 0 for term in self.least):
                named[place] = tuple(index.at(place) for index in self.indices)
        return named

    def inside(self):
        """Return what the places of the whole grid name inside the tensor, masked-out or not."""
        named = [
            tuple(index.at(place) for index in self.indices)
            for place in itertools.product(*map(range, self.grid))
        ]
        return [
            index
            for index in named
            if all(0 <= k < size for k, size in zip(index, self.shape, strict=True))
        ]

    def leaves(self):
        """Return whether the mask keeps an element that lies outside the tensor."""
        return any(
            not 0 <= number < size
            for index in self.kept().values()
            for number, size in zip(index, self.shape, strict=True)
        )

    def collides(self):
        """Return whether the mask keeps two places that name one element."""
        named = list(self.kept().values())
        return len(set(named)) < len(named)


def filled(shape, fill=0.0):
    out = nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)
    flat = out if len(shape) > 1 else out.reshape((*shape, 1))
    nl.store(flat, fill)
    return out


def places(grid):
    return tuple(nl.mgrid[tuple(map(slice, grid))])


def target_of(access, values):
    """Store the values on the grid, into a tile of the grid's shape."""
    target = nl.zeros(access.grid, nl.float32)
    target[places(access.grid)] = values
    return written(target)


def load(access, x, y):
    return target_of(access, nl.load(x[access.key()], mask=access.mask()))


def dma_copy_from(access, x, y):
    target = nl.zeros(access.grid, nl.float32)
    source = x[access.key()]
    nisa.dma_copy(dst=target[places(access.grid)], src=source, mask=access.mask())
    return written(target)


def store(access, x, y):
    out = filled(x.shape)
    nl.store(out[access.key()], nl.load(y), mask=access.mask())
    return out


def dma_copy_to(access, x, y):
    out = filled(x.shape)
    nisa.dma_copy(dst=out[access.key()], src=y, mask=access.mask())
    return out


def transpose(access, x, y):
    turned = nl.zeros(access.grid[::-1], nl.float32)
    turned[...] = nl.load_transpose2d(x[access.key()], mask=access.mask())
    return written(turned)


def copy(access, x, y):
    return target_of(access, nl.copy(nl.load(x)[access.key()], mask=access.mask()))


def add(access, x, y):
    part = nl.load(x)[access.key()]
    return target_of(access, nl.add(part, nl.load(y), mask=access.mask()))


def reduce(access, x, y):
    rows = nl.zeros((access.grid[0], 1), nl.float32)
    part = nl.load(x)[access.key()]
    rows[...] = nisa.tensor_reduce(np.maximum, part, axis=[1, 2], mask=access.mask())
    return written(rows)


def store_part(access, x, y):
    out = filled(access.grid)
    part = nl.load(x)[access.key()]
    nl.store(out[places(access.grid)], part, mask=access.mask())
    return out


def store_from_psum(access, x, y):
    out = filled(access.grid)
    held = nl.ndarray(x.shape, nl.float32, buffer=nl.psum)
    held[...] = nisa.tensor_copy(nl.load(x))
    part = held[access.key()]
    nl.store(out[places(access.grid)], part, mask=access.mask())
    return out


def assign(access, x, y):
    tile = nl.zeros(x.shape, nl.float32)
    tile[access.key()] = nl.load(y, mask=access.mask())
    return written(tile)


def add_in_place(access, x, y):
    tile = nl.zeros(x.shape, nl.float32)
    tile[access.key()] += nl.load(y, mask=access.mask())
    return written(tile)


KERNELS = {
    "load": load,
    "store": store,
    "dma_copy from": dma_copy_from,
    "dma_copy to": dma_copy_to,
    "transpose": transpose,
    "copy": copy,
    "add": add,
    "reduce": reduce,
    "store of a part": store_part,
    "store from PSUM": store_from_psum,
    "assign": assign,
    "add in place": add_in_place,
}
"""Kernels of a drawn access, of the tensor ``x`` and the grid's values ``y``."""


def literal(kind, access, x, y):
    """Return the kernel's result, by Python's loops."""
    kept = access.kept()
    if kind in WRITING:
        out = np.zeros_like(x)
        # the value's masked-out elements are poison, and are added where the target has them
        for index in access.inside() if kind == "add in place" else ():
            out[index] = np.nan
        for place, index in kept.items():
            out[index] = y[place]
        return out
    if kind == "reduce":
        rows = np.zeros((access.grid[0], 1), np.float32)
        for row in range(access.grid[0]):
            of_row = [x[index] for place, index in kept.items() if place[0] == row]
            if of_row:
                rows[row] = max(of_row)
        return rows
    out = np.zeros(access.grid, np.float32)
    for place, index in kept.items():
        out[place] = x[index] + (y[place] if kind == "add" else 0)
    return out.T if kind == "transpose" else out


@every("kind", tuple(KERNELS))
def test_each_masked_access_matches_a_loop(kind):
    """Both modes give the loop's result, and refuse what leaves its tensor under the mask."""
    outcomes = {"same": 0, "out of bounds": 0, "two values": 0, "no box": 0}
    for seed in range(DRAWS):
        access = Access(kind, seed)
        x = np.random.default_rng(seed).permutation(int(np.prod(access.shape))) + 1.0
        x = x.astype(np.float32).reshape(access.shape)
        y = (
            np.random.default_rng(seed + 1).permutation(int(np.prod(access.grid)))
            + 100.0
        )
        y = y.astype(np.float32).reshape(access.grid)
        kernel = functools.partial(KERNELS[kind], access)
        named = access.inside()
        if kind == "add in place" and len(set(named)) < len(named):
            outcomes["two values"] += 1
            continue
        error = None
        if access.leaves():
            error = OutOfBoundsError
            outcomes["out of bounds"] += 1
        elif kind in WRITING and access.collides():
            error = ShapeError
            outcomes["two values"] += 1
        for plain in (False, True):
            if error is None:
                (result,) = launch(kernel, [x, y], plain=plain).outputs
                assert_array_equal(
                    result, literal(kind, access, x, y), err_msg=repr(access)
                )
                continue
            with pytest.raises(error):
                launch(kernel, [x, y], plain=plain)
        if error is None:
            outcomes["same"] += 1
            outcomes["no box"] += is_no_box(access)
    assert outcomes["same"] > DRAWS / 4, outcomes
    assert outcomes["out of bounds"], outcomes
    assert outcomes["no box"] > 2, outcomes


def is_no_box(access):
    """Return whether the mask's region is not a box, and the box around it leaves the tensor."""
    kept = access.kept()
    if not kept:
        return False
    spans = [range(min(ends), max(ends) + 1) for ends in zip(*kept, strict=True)]
    box = itertools.product(*spans)
    return any(
        not 0 <= index.at(place) < size
        for place in box
        for index, size in zip(access.indices, access.shape, strict=True)
    )


X = np.arange(299, dtype=np.float32)


def three_in_a_row(x, out, mask):
    p, f = nl.mgrid[0:101, 0:3]
    nl.store(out[p * 3 + f], nl.load(x[p * 3 + f], mask=mask(p, f)), mask=mask(p, f))


@every("most", [299, 300])
def test_the_error_under_a_mask_names_the_kept_elements(most):
    """The mask of 299 is right for 299 elements, and the mask of 300 keeps one too many."""

    def kernel(x):
        out = nl.ndarray((299,), nl.float32, buffer=nl.shared_hbm)
        three_in_a_row(x, out, lambda p, f: p * 3 + f < most)
        return out

    if most == 299:
        assert_array_equal(launch(kernel, [X]).outputs[0], X)
        return
    with pytest.raises(OutOfBoundsError) as caught:
        launch(kernel, [X])
    assert (
        caught.value.happened
        == "an access left its tensor: its mask keeps index 299 of 299"
    )
    assert caught.value.limit == "0 to 298"
    assert "correct the mask" in caught.value.remedy


def test_the_trace_has_the_elements_that_a_mask_keeps():
    """And its regions stay inside their tensors, wherever the box around the mask ends."""

    def kernel(x):
        out = nl.ndarray((299,), nl.float32, buffer=nl.shared_hbm)
        three_in_a_row(x, out, lambda p, f: p * 3 + f < 299)
        return out

    events = launch(kernel, [X]).trace.events
    regions = [region for event in events for region in (*event.reads, *event.writes)]
    in_hbm = [region for region in regions if region.allocation.space.is_hbm]
    assert len(in_hbm) == 2
    for region in in_hbm:
        assert not region.whole
        assert region.pattern.extent() == (0, 298)
        assert_array_equal(region.places.elements, np.arange(299))


def test_an_element_that_two_places_name_gets_one_value():
    """The band overlaps itself: its places agree on the value, or the store is refused."""

    def kernel(x, same):
        p, f = nl.mgrid[0:4, 0:3]
        out = filled((5,))
        value = (
            nl.zeros((4, 3), nl.float32) if same else nl.load(x[0:12].reshape((4, 3)))
        )
        nl.store(out[p + f], value, mask=p + f < 5)
        return out

    launch(kernel, [X, True])
    with pytest.raises(ShapeError, match="given two values at once"):
        launch(kernel, [X, False])


BUGS = {
    "writes what is left out": (
        "_give",
        lambda self, region, values, where=None: region.fill(7),
    ),
    "reads the elements before": (
        "_take",
        lambda self, region: np.roll(region[self._index], 1),
    ),
}


@every("name", BUGS)
def test_a_bug_of_a_partial_tile_is_found(name, monkeypatch):
    """The plain mode finds a part that the fast mode handles wrongly."""
    method, bug = BUGS[name]

    def kernel(x):
        out = nl.ndarray((299,), nl.float32, buffer=nl.shared_hbm)
        three_in_a_row(x, out, lambda p, f: p * 3 + f < 299)
        return out

    launch(kernel, [X], plain=True)
    monkeypatch.setattr(PartialTile, method, bug)
    with pytest.raises(OracleError):
        launch(kernel, [X], plain=True)


COMPARISONS = {
    "p < f": lambda p, f: p < f,
    "p <= f": lambda p, f: p <= f,
    "p > f": lambda p, f: p > f,
    "p >= f": lambda p, f: p >= f,
    "p == f": lambda p, f: p == f,
    "2 < f": lambda p, f: f > 2,
    "2 * p - f + 1 >= 3": lambda p, f: 2 * p - f + 1 >= 3,
    "3 - f <= p": lambda p, f: 3 - f <= p,
    "a number on the left": lambda p, f: 4 >= p + f,  # noqa: SIM300
    "a conjunction": lambda p, f: (p < 3) & (f >= 1) & (p + f < 5),
    "with True": lambda p, f: (p < 3) & True,
    "with a bool of NumPy's": lambda p, f: np.bool_(True) & (p < 3),
    "with False": lambda p, f: (p < 3) & False,
    "all true": lambda p, f: p >= 0,
    "none": lambda p, f: p < 0,
}
"""Masks as a kernel writes them; of two numbers each is Python's own condition."""


@pytest.mark.filterwarnings("ignore:nl.where got a comparison")
@every("name", COMPARISONS)
def test_each_comparison_is_pythons(name):
    """Masks, ``nl.where`` and ``affine_select``: the modes share the condition's terms."""
    condition = COMPARISONS[name]
    data = np.arange(30, dtype=np.float32).reshape(6, 5) + 1
    expected = np.zeros_like(data)
    for row, column in np.ndindex(6, 5):
        if condition(row, column):
            expected[row, column] = data[row, column]

    def kernel(x):
        p, f = nl.mgrid[0:6, 0:5]
        tile = nl.load(x)
        mask = condition(p, f)
        masked = nl.zeros((6, 5), nl.float32)
        masked[...] = nl.copy(tile, mask=mask)
        made = [masked]
        if not isinstance(mask, bool):
            made.append(nl.where(mask, tile, 0.0))
            if len(mask.terms) == 1:
                made.append(nisa.affine_select(mask, tile, 0.0))
        return tuple(map(written, made))

    for plain in (False, True):
        for output in launch(kernel, [data], plain=plain).outputs:
            assert_array_equal(output, expected)

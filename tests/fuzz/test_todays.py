"""The comparison of modes finds planted bugs of the current dialect: views and accumulation."""

from __future__ import annotations

from typing import Any

import pytest

from difftest.simulator.dtypes import FLOAT32, TFLOAT32
from difftest.simulator.exact.bounded import ROUNDINGS
from difftest.simulator.frontend.nki import dynamic, views
from difftest.simulator.instructions import matmul, search
from difftest.simulator.pattern import Pattern
from tests.every import every
from tests.fuzz.comparison import Disagreement, check
from tests.fuzz.program import Input, Line, Output, Program

CUBE = Input("a", (4, 3, 6), "float32", "np.arange(72)", mutable=True)
SQUARE = Input("a", (3, 4), "float32", "np.arange(12)", mutable=True)


def program(given: Input, shape: tuple[int, ...], *lines: str) -> Program:
    """A kernel that fills `t` by these lines and returns it."""
    stored = [
        f"out = nl.ndarray({shape}, nl.float32, buffer=nl.shared_hbm)",
        "nisa.dma_copy(out, t)",
    ]
    body = tuple(Line(text, "nisa.dma_copy") for text in (*lines, *stored))
    return Program((given,), body, (Output("out", "out"),), dialect="nki")


def viewed(view: str, shape: tuple[int, ...]) -> Program:
    """A view of the cube in SBUF."""
    return program(
        CUBE,
        shape,
        "s = nl.load(a)",
        f"t = nl.ndarray({shape}, nl.float32)",
        f"nisa.tensor_copy(t, s{view})",
    )


ACCUMULATED = program(
    SQUARE,
    (4, 6),
    "s = nl.load(a)",
    "p = nl.zeros((4, 6), nl.float32, buffer=nl.psum)",
    "nisa.nc_matmul(p[:, 0:4], s, s)",
    "nisa.memset(p[:, 3:], 2)",
    "nisa.nc_matmul(p[:, 2:6], s, s)",
    "t = nl.copy(p)",
)
GATHERED = program(
    SQUARE,
    (2, 4),
    "i = nl.ndarray((2, 1), nl.int32)",
    "nisa.iota(i, [[0, 1]], 1, 1)",
    "t = nl.ndarray((2, 4), nl.float32)",
    "nisa.dma_copy(t, a.vector_select(0, i))",
)


MOVED = program(
    SQUARE,
    (3, 2),
    "s = nl.load(a)",
    "i = nl.full((1, 1), 1, nl.int32)",
    "t = nl.ndarray((3, 2), nl.float32)",
    "nisa.tensor_copy(t, s.ap([[4, 3], [1, 2]], scalar_offset=i, indirect_dim=1))",
)


MATCHED = program(
    SQUARE,
    (3, 8),
    "s = nl.load(a)",
    "w = nl.zeros((3, 10), nl.float32)",
    "nisa.tensor_copy(w[:, 1:5], s)",
    "v = nl.ndarray((3, 8), nl.float32)",
    "nisa.max8(v, w)",
    "p = nl.ndarray((3, 8), nl.uint32)",
    "nisa.nc_match_replace8(nl.ndarray((3, 10), nl.float32), w, v, -1.0, dst_idx=p)",
    "t = nl.copy(p, dtype=nl.float32)",
)


def changed(module: Any, name: str, after: Any) -> Any:
    """Plant `after(result)` behind a function."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        function = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, **more: after(function(*args, **more))
        )

    return plant


def shifted_pattern(pattern: Pattern) -> Pattern:
    return pattern._replace(offset=pattern.offset + 1)


def swapped(view: Any) -> Any:
    strides = view._pattern.strides
    return view._view(view._pattern._replace(strides=(strides[0], *strides[:0:-1])))


def shifted(view: Any) -> Any:
    return view._view(shifted_pattern(view._pattern))


def first_is_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of equal values takes the first place."""
    ranks = search.ranks_of
    monkeypatch.setattr(
        search, "ranks_of", lambda vals, backwards: ranks(vals, backwards=not backwards)
    )


PLANTED = {
    "equal values": (MATCHED, first_is_last),
    "permute": (
        viewed(".permute((0, 2, 1))", (4, 6, 3)),
        changed(views.Views, "permute", swapped),
    ),
    "slice": (
        viewed(".slice(2, 0, 5, 2)", (4, 3, 3)),
        changed(views.Views, "slice", shifted),
    ),
    "index": (
        viewed("[1:3, :, 2]", (2, 3)),
        changed(views, "_indexed", shifted_pattern),
    ),
    "reshape": (
        viewed(".reshape((4, 9, 2))", (4, 9, 2)),
        changed(
            Pattern, "reshape", lambda one: one._replace(strides=one.strides[::-1])
        ),
    ),
    "split": (
        viewed(".reshape_dim(2, (2, -1))", (4, 3, 2, 3)),
        changed(views.Views, "reshape_dim", swapped),
    ),
    "ap": (
        viewed(".ap([[18, 4], [3, 2], [1, 3]], 1)", (4, 2, 3)),
        changed(dynamic, "_wanted", shifted_pattern),
    ),
    "accumulation": (
        ACCUMULATED,
        changed(matmul, "_products", lambda started: started & False),
    ),
    "one offset": (
        MOVED,
        changed(
            dynamic.DynamicView, "_settled", lambda view: view[:, 0:1].broadcast(1, 2)
        ),
    ),
    "rows": (
        GATHERED,
        changed(dynamic.DynamicView, "_offsets", lambda rows: rows[::-1]),
    ),
}


@every("name", PLANTED)
def test_a_planted_bug_is_a_disagreement(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, plant = PLANTED[name]
    assert all(outcome.result is not None for outcome in check(drawn))
    plant(monkeypatch)
    with pytest.raises(Disagreement):
        check(drawn)


def test_a_value_computed_from_an_overflow_has_no_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reciprocal of an infinity is 0, and the exact run's is not. Other numbers have one."""
    line = "t = nl.reciprocal(nl.load(a, dtype=nl.tfloat32))"
    largest, three = (
        Input("a", (2, 3), "float32", f"[{of}]") for of in (3.4028e38, 3.0)
    )
    check(program(largest, (2, 3), line))
    check(program(three, (2, 3), line))
    monkeypatch.setitem(ROUNDINGS, TFLOAT32, ROUNDINGS[FLOAT32])
    with pytest.raises(Disagreement, match="exactly, off by at most"):
        check(program(three, (2, 3), line))


@every(
    "view",
    [
        "[4]",
        "[0:5]",
        ".slice(1, 2, 2)",
        ".permute((1, 0, 2))",
        ".reshape((8, 9))",
        ".permute((0, 2, 1)).reshape((4, 18))",
        ".flatten_dims(0, 1)",
        ".broadcast(1, 2)",
        ".expand_dim(0)",
        ".squeeze_dim(1)",
        ".ap([[18, 5], [1, 18]])",
        ".ap([[18, 4], [1, 19]])",
        ".ap([[36, 2], [1, 18]])",
        "[1:2].ap([[18, 2], [1, 18]], 0)",
        ".view(nl.float16).slice(2, 1, 5).view(nl.float32)",
    ],
)
def test_both_modes_reject_an_impossible_view(view: str) -> None:
    outcomes = check(viewed(view, (4, 18)))
    assert all(outcome.refusal is not None for outcome in outcomes)

"""Which cases a test tries, among its first ones."""

import hypothesis
import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.plan import DrawingPlan
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.sizes import sizes
from tests.every import every

GENERATED = settings(
    database=None,
    deadline=None,
    phases=[Phase.generate],
    max_examples=20,
    backend=BACKEND,
)
DTYPES = ("float32", "bfloat16")


def spec_of(kernel, dtypes=("float32",), **domain):
    names = list(domain)
    return KernelSpec(
        kernel=kernel,
        reference=lambda x: x,
        domain=domain,
        inputs={"x": " ".join(names[:2])},
        parameters=names,
        dtypes=dtypes,
    )


def drawn(spec, seed):
    met = []

    @hypothesis.seed(seed)
    @GENERATED
    @given(cases(spec))
    def collect(case):
        met.append(case)

    collect()
    return met


def plain(x, rows, columns, pool):
    return x


PLAIN = spec_of(
    plain, DTYPES, rows=sizes(1, 256), columns=sizes(1, 600), pool=(1, 2, 3)
)


@every("seed", range(3))
def test_a_session_of_twenty_cases_has_what_it_is_to_have(seed):
    """A quarter has equal sizes, each pool and dtype comes as often, limits are met."""
    met = drawn(PLAIN, seed)
    points = [tuple(case.values.values()) for case in met]
    assert 4 <= sum(rows == columns for rows, columns, _ in points) <= 8
    assert all(5 <= sum(at[2] == pool for at in points) <= 8 for pool in (1, 2, 3))
    assert 9 <= sum(case.dtype == DTYPES[1] for case in met) <= 11
    assert any(127 <= size <= 130 for at in points for size in at[:2])
    assert sum(columns > 256 for _, columns, _ in points) >= 4
    assert len({repr(case) for case in met}) == 20


def late(x, S, pos):
    return x * 2 if pos // 128 >= 2 else x


@every(
    "source",
    [
        lambda S: sizes(0, S),
        lambda S: st.integers(0, S),
        lambda S: range(S + 1),
        lambda S: st.sampled_from(range(S + 1)),
    ],
)
def test_a_late_tile_of_a_dependent_name_is_met_however_it_is_spelled(source):
    spec = spec_of(late, S=sizes(1, 400), pos=source)
    for seed in range(3):
        tiles = [case.values["pos"] // 128 for case in drawn(spec, seed)]
        assert sum(tile >= 2 for tile in tiles) >= 2


def test_an_edge_of_a_dependent_name_moves_the_name_that_it_depends_on():
    """No condition asks for it."""
    domain = {"rows": sizes(1, 400), "columns": lambda rows: sizes(1, rows)}
    spec = spec_of(lambda x, rows, columns: x, **domain)
    assert 129 in DrawingPlan(spec, []).dependent["columns"]
    met = [case.values["columns"] for seed in range(4) for case in drawn(spec, seed)]
    assert sum(127 <= columns <= 130 for columns in met) >= 6


def test_a_function_that_refuses_sizes_is_left_alone():
    def columns(rows):
        if rows > 10:
            raise KeyError(rows)
        return sizes(1, rows)

    spec = spec_of(lambda x, rows, columns: x, rows=sizes(1, 400), columns=columns)
    plan = DrawingPlan(spec, [])
    assert plan.source_of("columns", {"rows": 20}) is None
    assert plan.source_of("columns", {"rows": 3}) is not None


def test_nothing_is_dealt_again_before_all_else_was():
    plan = DrawingPlan(PLAIN, [])
    chance = np.random.default_rng(0)
    dealt = [plan.deal("deck", 5, chance) for _ in range(15)]
    assert [sorted(dealt[at : at + 5]) for at in (0, 5, 10)] == 3 * [[0, 1, 2, 3, 4]]

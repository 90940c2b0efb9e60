import numpy as np
import pytest

from difftest.simulator import NkiError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

A = normal(6, 8)
P, X = nl.mgrid[0:6, 0:8]
ROWS, COLUMNS = np.mgrid[0:6, 0:8]


PREDICATE = (COLUMNS % 3 == ROWS % 3).astype(np.uint8)


def ranged(x, **changes):
    bound = nl.zeros((6, 1), nl.float32)
    given = {"on_true_tile": x, "comp_op0": np.less, "comp_op1": np.less}
    return nisa.range_select(**{**given, "bound0": bound, "bound1": bound, **changes})


REFUSED = [
    (
        "two conditions",
        lambda x, p: nisa.affine_select((P >= X) & (P < 4), x, 0),
        "affine_select takes pred as one comparison of index expressions",
    ),
    (
        "an equality",
        lambda x, p: nisa.affine_select(P == X, x, 0),
        "pred as one comparison",
    ),
    (
        "a tile as condition",
        lambda x, p: nisa.affine_select(x > 0, x, 0),
        "pred as one comparison",
    ),
    (
        "a bound for each element",
        lambda x, p: ranged(x, bound1=x),
        "range_select takes bound1 as a vector",
    ),
    (
        "where of a number",
        lambda x, p: nl.where(1, x, x),
        "nl.where takes a tile as condition",
    ),
]


@every("compute, rule", [row[1:] for row in REFUSED])
def test_misuse_of_a_selection_is_rejected(compute, rule):
    with pytest.raises(NkiError, match=rule):
        on_tiles(compute, A, PREDICATE)

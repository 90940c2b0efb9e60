"""Seeds and states of the engines' random numbers."""

import numpy as np
from numpy.testing import assert_array_equal

from difftest.simulator import TRN1, TRN3, DtypeError, KernelError, ShapeError
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, raised, tile

VECTOR = nisa.engine.vector


def numbers():
    """A tile of random words."""
    drawn = nl.ndarray((4, 8), nl.uint32)
    nisa.rng(drawn)
    return drawn


def seeded(seed):
    nisa.set_rng_seed(seed)
    return numbers(), numbers()


def test_a_seed_repeats_its_numbers_and_another_one_does_not():
    seeds = [np.full((1, 1), value, np.uint32) for value in (7, 8)]
    first, second = on_nki_tiles(seeded, seeds[0])
    assert (first != second).any()
    assert_array_equal(on_nki_tiles(seeded, seeds[0])[0], first)
    assert (on_nki_tiles(seeded, seeds[1])[0] != first).any()


@every("engine, words", [(nisa.engine.gpsimd, 6), (VECTOR, 24)])
def test_a_state_that_is_set_again_repeats_its_numbers(engine, words):
    def compute():
        numbers()
        state = nl.ndarray((128, words), nl.uint32)
        nisa.rand_get_state(state, engine=engine)
        after = numbers()
        between = numbers()
        nisa.rand_set_state(state, engine=engine)
        return after, between, numbers()

    after, between, again = on_nki_tiles(compute, machine=TRN3)
    assert_array_equal(after, again)
    assert (after != between).any()


def words_of(count, dtype=nl.uint32):
    return tile((4, count), dtype)


@every(
    "compute, machine, error, text",
    [
        (
            lambda: nisa.rand_set_state(words_of(6)),
            TRN1,
            KernelError,
            "needs NeuronCore-v3",
        ),
        (
            lambda: nisa.rand_set_state(words_of(24), VECTOR),
            None,
            KernelError,
            "runs on the engines",
        ),
        (
            lambda: nisa.rand_set_state(words_of(24)),
            None,
            ShapeError,
            "src_seeds of shape [4, 6]",
        ),
        (
            lambda: nisa.rand_get_state(words_of(6, nl.int32)),
            None,
            DtypeError,
            "uint32",
        ),
        (
            lambda: nisa.set_rng_seed(words_of(2)),
            None,
            ShapeError,
            "src_seeds of one element",
        ),
    ],
)
def test_misuse_of_random_states_is_rejected(compute, machine, error, text):
    options = {} if machine is None else {"machine": machine}
    assert text in raised(error, lambda: (compute(), tile((1, 1)))[1], **options)

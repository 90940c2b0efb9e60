import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, SignatureError, Space, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

DATA = normal(4, 6)


def test_tensors_like_another():
    def compute(x):
        empty = nl.empty_like(x, buffer=nl.psum)
        assert (empty.shape, empty.dtype, empty._space) == (
            (4, 6),
            np.float32,
            Space.PSUM,
        )
        return nl.zeros_like(x), nl.zeros_like(x, nl.int8)

    same, small = on_tiles(compute, DATA)
    assert_array_equal(same, np.zeros((4, 6), np.float32), strict=True)
    assert_array_equal(small, np.zeros((4, 6), np.int8), strict=True)


def test_constants_and_identities_are_in_shared_hbm():
    table = np.arange(24).reshape(4, 6) % 5

    def compute(_):
        constant = nl.shared_constant(table, dtype=nl.float16)
        identity = nl.shared_identity_matrix(5)
        named = nl.shared_identity_matrix(3, dtype=nl.bfloat16)
        assert constant._space is Space.SHARED_HBM
        return nl.load(constant), nl.load(identity), nl.load(named)

    constant, identity, named = on_tiles(compute, DATA)
    assert_array_equal(constant, table.astype(np.float16), strict=True)
    assert_array_equal(identity, np.identity(5, np.uint8), strict=True)
    assert_array_equal(
        named.astype(np.float32), np.identity(3, np.float32), strict=True
    )


REFUSED = {
    ("a shape of positive sizes", "(4, 0)"): lambda: nl.zeros((4, 0), nl.float32),
    ("positive sizes", "(-4, 1)"): lambda: nl.zeros((-4, 1), nl.float32),
    ("a shape of integers", "1.5 at"): lambda: nl.zeros((4, 1.5), nl.float32),
    ("a shape of integers", "'ab' at axis 0"): lambda: nl.zeros("ab", nl.float32),
    ("at most one nl.par_dim", "(par_dim(4), par_dim(4))"): (
        lambda: nl.zeros((nl.par_dim(4), nl.par_dim(4)), nl.float32)
    ),
    ("takes buffer as one of NKI's memories", "str 'sbuf'"): (
        lambda: nl.zeros((4, 4), nl.float32, buffer="sbuf")
    ),
    ("nl.shared_identity_matrix takes a shape of positive sizes", "0"): (
        lambda: nl.shared_identity_matrix(0)
    ),
    ("takes one integer, of 32 bits and no sign", "tile [1, 2] int32 in sbuf"): (
        lambda: nl.random_seed(nl.ones((1, 2), nl.int32))
    ),
    ("nl.shared_constant takes a shape of positive sizes", "(0, 3)"): (
        lambda: nl.shared_constant(np.zeros((0, 3), np.float32))
    ),
    (
        "nl.random_seed takes loop and program indices in a mask",
        "indices of shape [1, 2]",
    ): (lambda: nl.random_seed(1, mask=nl.arange(2)[None, :] < 1)),
}
"""By the rule and the received value, the calls that it rejects."""


@every("said, use", REFUSED.items())
def test_misuse_of_creation_is_rejected(said, use):
    rule, received = said

    def kernel():
        use()

    with pytest.raises(NkiError) as caught:
        launch(kernel)
    assert rule in str(caught.value)
    assert received in caught.value.received


def test_iota_of_a_number_is_one_element():
    def kernel():
        out = nl.ndarray((4, 3, 1), nl.int32, buffer=nl.shared_hbm)
        for i in nl.affine_range(3):
            number = nisa.iota(i + nl.program_id(0), dtype=nl.int32)
            nl.store(out[nl.program_id(0), i], number[0])
        return out

    for plain in (False, True):
        result = launch(kernel, grid=(4,), plain=plain).outputs[0]
        assert result[:, :, 0].tolist() == [[p, p + 1, p + 2] for p in range(4)]


def test_the_current_signature_is_named_as_such():
    tile = {"pattern": [[1, 4]], "offset": 0}
    for given in (tile, {"dst": None}, {"channel_multiplier": 1}):
        with pytest.raises(SignatureError, match="belongs to nki"):
            launch(lambda given=given: nisa.iota(**given))

import numpy as np
from hypothesis import strategies as st

from difftest import Input, Rejection, Uniform, kernel_test, multiples, seeded, sizes
from kernels.classic import attention as classic
from kernels.nki.attention import attention_heads
from reference.attention import attention
from tests.kernels.budget import NIGHTLY, large_cases, middling_cases
from tests.kernels.layers import DTYPES

HEADS = {"q": "H Sq D", "k": "G Sk D", "v": "G Sk D"}
SMALL = {"causal": False, "G": 1, "H": 2, "Sq": 3, "Sk": 4, "D": 5}


def keys(causal, Sq):
    """As many keys as queries at least, if a query sees those before it alone."""
    return sizes(Sq if causal else 1, 280)


@middling_cases
@kernel_test(
    kernel=attention_heads,
    reference=attention,
    domain={
        "causal": (False, True),
        "G": (1, 2, 3),
        "H": lambda G: (G, 3 * G),
        "Sq": sizes(1, 140),
        "Sk": keys,
        "D": sizes(1, 128),
    },
    inputs=HEADS,
    parameters=("causal",),
    dtypes=DTYPES,
    rejects=[
        Rejection(
            {**SMALL, "D": 129}, match="a head has at most 128 elements: got 129"
        ),
        Rejection(
            {**SMALL, "G": 2, "H": 3}, match="a multiple of those of k: got 3 and 2"
        ),
        Rejection(
            {**SMALL, "causal": True, "Sq": 5}, match="no more queries than keys: got 5"
        ),
        Rejection(
            SMALL, match=r"k and v have shape \(1, 4, 5\)", shapes={"v": (1, 3, 5)}
        ),
        Rejection(SMALL, match="k and v have shape", shapes={"k": (1, 4, 6)}),
        Rejection(
            SMALL, match="k and v have shape", shapes={"k": (1, 4, 6), "v": (1, 4, 6)}
        ),
        Rejection(SMALL, match="q, k and v have one dtype", dtypes={"q": "float16"}),
        Rejection(SMALL, match="q, k and v have one dtype", dtypes={"v": "float16"}),
    ],
    examples=[
        {"causal": True, "G": 1, "H": 1, "Sq": 1, "Sk": 1000, "D": 64},
        {"causal": True, "G": 1, "H": 2, "Sq": 257, "Sk": 513, "D": 128},
        {"causal": False, "G": 3, "H": 3, "Sq": 5, "Sk": 4, "D": 5},
    ],
    edges=NIGHTLY,
)
def test_attention_heads(case):
    case.check()


@middling_cases
@kernel_test(
    kernel=attention_heads,
    reference=attention,
    domain={
        "causal": (True,),
        "G": (1, 2),
        "H": lambda G: (G, 2 * G),
        "Sq": sizes(1, 140),
        "Sk": keys,
        "D": sizes(1, 128),
    },
    inputs={
        name: Input(dimensions, data=seeded(Uniform, low=-1.0, high=1.0))
        for name, dimensions in HEADS.items()
    },
    parameters=("causal",),
    dtypes=DTYPES,
    reduction=4,
    accumulation="bfloat16",
    # of a weighted mean
    magnitude=lambda q, k, v, causal: attention(q, k, abs(v), causal),
    edges=False,
)
def test_attention_heads_sees_the_right_keys(case):
    """Draw small scores, held to a bound of their own.

    A query from which a wrong mask hides all keys has scores of -1e30. Then every digit of the
    result is unsure, so that the exact run decides nothing.
    """
    case.check()


def attention_of_columns(q, k, v):
    """Attention of one head whose queries, keys and values are columns, without a scale."""
    q, k, v = (np.asarray(array, np.float64).T[None] for array in (q, k, v))
    return attention(q * np.sqrt(q.shape[2]), k, v)[0]


COLUMNS = st.one_of(
    seeded(Uniform, low=-1.0, high=1.0), seeded(Uniform, low=-60.0, high=60.0)
)
"""Small, and so large that no power is finite unless the largest score is subtracted."""


@large_cases
@kernel_test(
    kernels=(classic.attention_in_phases, classic.fused_attention),
    reference=attention_of_columns,
    domain={"S": multiples(512, at_most=1024)},
    inputs={name: Input("128 S", data=COLUMNS) for name in ("q", "k", "v")},
    dtypes=DTYPES,
    rejects=[
        Rejection({"S": 500}, match="a multiple of 512: got 500"),
        Rejection(
            {"S": 512}, match="q, k and v have one shape", shapes={"v": (128, 5)}
        ),
        Rejection(
            {"S": 512}, match="q, k and v have one shape", shapes={"q": (128, 5)}
        ),
        Rejection(
            {"S": 512},
            match="a query has 128 elements: got 64",
            shapes=dict.fromkeys("qkv", (64, 512)),
        ),
    ],
)
def test_attention_of_columns(case):
    case.check()

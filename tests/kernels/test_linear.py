from difftest import Input, Rejection, Uniform, kernel_test, multiples, seeded
from kernels.classic.linear import linear_gelu as linear_gelu_kernel
from reference.linear import linear_gelu
from tests.kernels.budget import large_cases
from tests.kernels.layers import DTYPES

WEIGHTS = seeded(Uniform, low=-1.0, high=1.0)
"""Small enough for float16."""
SMALL = {"K": 128, "M": 128, "N": 512}


@large_cases
@kernel_test(
    kernel=linear_gelu_kernel,
    reference=linear_gelu,
    domain={
        "K": multiples(128, at_most=384),
        "M": multiples(128, at_most=256),
        "N": multiples(512, at_most=1024),
    },
    inputs={
        "x": Input("K M", data=WEIGHTS),
        "w": Input("K N", data=WEIGHTS),
        "bias": Input("1 N", data=WEIGHTS, dtype="float32"),
    },
    dtypes=DTYPES,
    rejects=[
        Rejection({**SMALL, "K": 100}, match="multiples of 128, N of 512: got 100"),
        Rejection({"K": 100, "M": 100, "N": 100}, match="N of 512: got 100, 100, 100"),
        Rejection({**SMALL, "N": 128}, match="N of 512: got 128, 128, 128"),
    ],
)
def test_linear_gelu(case):
    case.check()

from difftest import Input, Rejection, Uniform, kernel_test, seeded, sizes
from kernels.nki.gated_mlp import gated_mlp_rows
from reference.gated_mlp import gated_mlp
from tests.kernels.budget import NIGHTLY, middling_cases
from tests.kernels.layers import DTYPES

WEIGHTS = seeded(Uniform, low=-1.0, high=1.0)
"""Small enough that the hidden layer does not overflow float16, which Hypothesis found."""
SMALL = {"T": 2, "N": 3, "F": 4}


@middling_cases
@kernel_test(
    kernel=gated_mlp_rows,
    reference=gated_mlp,
    domain={"T": sizes(1, 140), "N": sizes(1, 200), "F": sizes(1, 200)},
    inputs={
        "x": Input("T N", data=WEIGHTS),
        "gate": Input("N F", data=WEIGHTS),
        "up": Input("N F", data=WEIGHTS),
        "down": Input("F N", data=WEIGHTS),
    },
    dtypes=DTYPES,
    rejects=[
        Rejection(
            SMALL, match=r"gate and up have shape \(3, 4\)", shapes={"up": (3, 5)}
        ),
        Rejection(SMALL, match="gate and up have shape", shapes={"gate": (5, 4)}),
        Rejection(
            SMALL, match="gate and up have shape", shapes={"gate": (5, 4), "up": (5, 4)}
        ),
        Rejection(SMALL, match="have one dtype", dtypes={"x": "float16"}),
        Rejection(SMALL, match="have one dtype", dtypes={"down": "float16"}),
        Rejection(
            SMALL,
            match=r"down has shape \(4, 3\): got \(3, 4\)",
            shapes={"down": (3, 4)},
        ),
    ],
    examples=[{"T": 257, "N": 1025, "F": 257}],
    edges=NIGHTLY,
)
def test_gated_mlp_rows(case):
    case.check()

from difftest import Input, Rejection, kernel_test, sizes
from kernels.nki.rope import rope_rows
from reference.rope import rope
from tests.kernels.budget import middling_cases
from tests.kernels.layers import DTYPES

ANGLES = Input("T half", dtype=("float32", "bfloat16"))


@middling_cases
@kernel_test(
    kernel=rope_rows,
    reference=rope,
    domain={"T": sizes(1, 300), "half": sizes(1, 64), "D": lambda half: (2 * half,)},
    inputs={"x": "T D", "cos": ANGLES, "sin": ANGLES},
    dtypes=DTYPES,
    rejects=[
        Rejection(
            {"T": 2, "half": 2, "D": 4},
            match="an even number of elements",
            shapes={"x": (2, 5)},
        ),
        Rejection(
            {"T": 2, "half": 2, "D": 4},
            match=r"cos has shape \(2, 2\): got \(1, 2\)",
            shapes={"cos": (1, 2)},
        ),
        Rejection(
            {"T": 2, "half": 2, "D": 4},
            match=r"sin has shape \(2, 2\): got \(1, 2\)",
            shapes={"sin": (1, 2)},
        ),
    ],
)
def test_rope_rows(case):
    case.check()

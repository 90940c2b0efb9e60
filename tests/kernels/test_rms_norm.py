from difftest import Input, Rejection, kernel_test, sizes
from kernels.nki.rms_norm import rms_norm_rows
from reference.rms_norm import rms_norm
from tests.kernels.budget import middling_cases
from tests.kernels.layers import DTYPES


@middling_cases
@kernel_test(
    kernel=rms_norm_rows,
    reference=rms_norm,
    domain={"T": sizes(1, 300), "N": sizes(1, 600), "eps": (1e-6, 1e-5, 0.1)},
    inputs={"x": "T N", "gamma": Input("N", dtype=("float32", "bfloat16"))},
    parameters=("eps",),
    dtypes=DTYPES,
    rejects=[
        Rejection(
            {"T": 2, "N": 3, "eps": 1e-6},
            match=r"gamma has one value for each of 3 elements: got \(4,\)",
            shapes={"gamma": (4,)},
        )
    ],
    examples=[{"T": 128, "N": 4096, "eps": 1e-6}],
)
def test_rms_norm_rows(case):
    case.check()

from difftest import Rejection, kernel_test, multiples
from kernels.transpose import matrix_transpose
from reference.transpose import transpose


@kernel_test(
    kernel=matrix_transpose,
    reference=transpose,
    domain={"M": multiples(128, at_most=640), "N": multiples(128, at_most=640)},
    inputs={"a_tensor": "M N"},
    dtypes=("float32", "float16", "bfloat16"),
    reduction=0,
    rejects=[
        Rejection({"M": 128, "N": 200}, match="multiples of 128, got 128 x 200"),
        Rejection({"M": 127, "N": 128}, match="multiples of 128, got 127 x 128"),
    ],
    examples=[{"M": 1024, "N": 256}],
)
def test_matrix_transpose(case):
    case.check()

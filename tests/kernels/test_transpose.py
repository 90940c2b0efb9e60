from difftest import Rejection, kernel_test, multiples
from kernels.classic import transpose as classic
from kernels.nki import transpose as todays
from reference.transpose import transpose
from tests.kernels.budget import in_turn, large_cases

SIZES = {"M": multiples(128, at_most=1152), "N": multiples(128, at_most=640)}
INPUTS = {"a_tensor": "M N"}
DTYPES = ("float32", "float16", "bfloat16")
MATRIX = {"reference": transpose, "inputs": INPUTS, "dtypes": DTYPES}
REJECTIONS = [
    Rejection({"M": 128, "N": 200}, match="multiples of 128, got 128 x 200"),
    Rejection({"M": 127, "N": 128}, match="multiples of 128, got 127 x 128"),
    Rejection({"M": 200, "N": 200}, match="multiples of 128, got 200 x 200"),
]


@large_cases
@kernel_test(
    kernels=(classic.matrix_transpose, todays.matrix_transpose),
    domain=SIZES,
    rejects=REJECTIONS,
    examples=in_turn(DTYPES, INPUTS, {"M": 1024, "N": 256}, {"M": 128, "N": 8448}),
    **MATRIX,
)
def test_matrix_transpose(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.matrix_transpose, todays.matrix_transpose),
    domain={
        "PANEL_BYTES": (4096, 512, 100, 1024),
        "STORE_TILES": (4, 1, 2, 3),
        **SIZES,
    },
    parameters=("PANEL_BYTES", "STORE_TILES"),
    **MATRIX,
)
def test_matrix_transpose_in_several_panels(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.transpose_by_tiles, todays.transpose_by_tiles),
    domain=SIZES,
    rejects=REJECTIONS,
    **MATRIX,
)
def test_transpose_by_tiles(case):
    case.check()

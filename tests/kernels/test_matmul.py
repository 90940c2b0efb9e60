from difftest import Rejection, kernel_test, multiples, sizes
from kernels.classic import matmul as classic
from kernels.nki import matmul as todays
from reference.matmul import matmul
from tests.kernels.budget import in_turn, large_cases

DTYPES = ("float32", "float16", "bfloat16")
OPERANDS = {"lhsT": "K M", "rhs": "K N"}
TILES = ("TILE_M", "TILE_K", "TILE_N")


@large_cases
@kernel_test(
    kernels=(classic.nki_matmul_tiled_, todays.nki_matmul_tiled_),
    reference=matmul,
    domain={
        "M": multiples(128, at_most=384),
        "K": multiples(128, at_most=640),
        "N": multiples(512, at_most=1024),
    },
    inputs=OPERANDS,
    outputs={"result": "M N"},
    dtypes=DTYPES,
    rejects=[
        Rejection(
            {"M": 200, "K": 128, "N": 512},
            match="M=200 is not a multiple of TILE_M=128",
        ),
        Rejection(
            {"M": 128, "K": 64, "N": 512}, match="K=64 is not a multiple of TILE_K=128"
        ),
        Rejection(
            {"M": 128, "K": 128, "N": 500},
            match="N=500 is not a multiple of TILE_N=512",
        ),
        Rejection(
            {"M": 128, "K": 128, "N": 512},
            match="contract over different sizes: 128 and 256",
            shapes={"rhs": (256, 512)},
        ),
        Rejection(
            {"M": 128, "K": 128, "N": 512},
            match="result has",
            shapes={"result": (512, 128)},
        ),
    ],
    examples=in_turn(
        DTYPES,
        OPERANDS,
        {"M": 128, "K": 2048, "N": 512},
        {"M": 512, "K": 512, "N": 1024},
    ),
)
def test_nki_matmul_tiled(case):
    case.check()


def tiles(of, at_most):
    """Up to three tiles along a dimension."""
    return multiples(of, at_most=min(at_most, 3 * of))


@large_cases
@kernel_test(
    kernels=(classic.nki_matmul_tiled_, todays.nki_matmul_tiled_),
    reference=matmul,
    domain={
        "TILE_M": sizes(1, 128),
        "TILE_K": sizes(1, 128),
        "TILE_N": sizes(1, 512),
        "M": lambda TILE_M: tiles(TILE_M, at_most=256),
        "K": lambda TILE_K: tiles(TILE_K, at_most=384),
        "N": lambda TILE_N: tiles(TILE_N, at_most=1024),
    },
    inputs=OPERANDS,
    outputs={"result": "M N"},
    parameters=TILES,
    dtypes=DTYPES,
    rejects=[
        Rejection(
            {"TILE_M": 256, "TILE_K": 128, "TILE_N": 512, "M": 256, "K": 128, "N": 512},
            match="at most 128",
        ),
        Rejection(
            {"TILE_M": 128, "TILE_K": 256, "TILE_N": 512, "M": 128, "K": 256, "N": 512},
            match="at most 128",
        ),
        Rejection(
            {
                "TILE_M": 128,
                "TILE_K": 128,
                "TILE_N": 1024,
                "M": 128,
                "K": 128,
                "N": 1024,
            },
            match="512|2048 bytes|bank",
        ),
    ],
)
def test_nki_matmul_tiled_with_other_tiles(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.nki_matmul_tiled_, todays.nki_matmul_tiled_),
    reference=matmul,
    domain={"M": (128,), "K": (128, 256), "N": (512,)},
    inputs=OPERANDS,
    outputs={"result": "M N"},
    dtypes=("float16", "bfloat16"),
    output_dtype="float32",
)
def test_nki_matmul_tiled_into_float32(case):
    case.check()

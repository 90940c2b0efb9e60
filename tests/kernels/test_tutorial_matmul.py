from difftest import Rejection, kernel_test, multiples
from kernels.classic import tutorial_matmul as classic
from kernels.nki import tutorial_matmul as todays
from reference.matmul import matmul
from tests.kernels.budget import NIGHTLY, in_turn, large_cases

DTYPES = ("float32", "float16", "bfloat16")
OPERANDS = {"lhsT": "K M", "rhs": "K N"}
TILES = ("M_TILES", "N_TILES", "K_TILES")
THREE_OF_EACH = {"M": 384, "N": 1536, "K": 384}
BLOCKS = {"M_TILES": 2, "N_TILES": 2, "K_TILES": 2, "M": 256, "N": 1024, "K": 256}


@large_cases
@kernel_test(
    kernels=(classic.matmul_hoisted, todays.matmul_hoisted),
    reference=matmul,
    domain={
        "M": multiples(128, at_most=384),
        "K": multiples(128, at_most=384),
        "N": multiples(512, at_most=1536),
    },
    inputs=OPERANDS,
    dtypes=DTYPES,
    output_dtype="float32",
    rejects=[
        Rejection(
            {"M": 128, "K": 100, "N": 512}, match="K=100 is not a multiple of 128"
        ),
        Rejection(
            {"M": 100, "K": 128, "N": 512}, match="M=100 is not a multiple of 128"
        ),
        Rejection({"M": 128, "K": 128, "N": 612}, match="N=612 of 512"),
        Rejection({"M": 130, "K": 128, "N": 514}, match="N=514 of 512"),  # both leave 2
        Rejection(
            {"M": 128, "K": 128, "N": 512},
            match="different sizes: 128 and 256",
            shapes={"rhs": (256, 512)},
        ),
    ],
    examples=in_turn(DTYPES, OPERANDS, THREE_OF_EACH),
    edges=NIGHTLY,  # the calls of test_matmul are filled
)
def test_matmul_hoisted(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.matmul_blocked, todays.matmul_blocked),
    reference=matmul,
    domain={
        "M_TILES": (1, 2, 3),
        "N_TILES": (1, 2, 3),
        "K_TILES": (1, 2, 3),
        "M": lambda M_TILES: multiples(128 * M_TILES, at_most=max(128 * M_TILES, 512)),
        "N": lambda N_TILES: multiples(512 * N_TILES, at_most=max(512 * N_TILES, 1536)),
        "K": lambda K_TILES: multiples(128 * K_TILES, at_most=max(128 * K_TILES, 768)),
    },
    inputs=OPERANDS,
    parameters=TILES,
    dtypes=DTYPES,
    output_dtype="float32",
    rejects=[
        Rejection(
            {**BLOCKS, "M": 128}, match="M=128 is not a multiple of its block, 256"
        ),
        Rejection(
            {**BLOCKS, "N": 512}, match="N=512 is not a multiple of its block, 1024"
        ),
        Rejection(
            {**BLOCKS, "K": 128}, match="K=128 is not a multiple of its block, 256"
        ),
    ],
    examples=in_turn(
        DTYPES, OPERANDS, {**BLOCKS, **dict.fromkeys(TILES, 1), **THREE_OF_EACH}
    ),
    edges=NIGHTLY,
)
def test_matmul_blocked(case):
    case.check()

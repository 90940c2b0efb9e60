from difftest import Rejection, kernel_test, multiples
from kernels.nki import tuned_matmul
from reference.matmul import matmul
from tests.kernels.budget import NIGHTLY, large_cases

DTYPES = ("bfloat16",)
TILES = ("K_TILES", "M_TILES", "N_TILES")
BLOCKS = {"ROWS_FIRST": True, "K_TILES": 2, "M_TILES": 2, "N_TILES": 2, "ROOM": 0}
THREE_OF_EACH = {"M": 384, "N": 1536, "K": 384}
SIZES = {
    "M": lambda M_TILES: multiples(128 * M_TILES, at_most=256),
    "N": lambda N_TILES: multiples(512 * N_TILES, at_most=1024),
    "K": lambda K_TILES: multiples(128 * K_TILES, at_most=256),
}


def turned(lhs, rhs, TURNED):
    """Multiply operands that are not transposed; lhs is transposed unless TURNED is False."""
    return matmul(lhs.T if TURNED else lhs, rhs)


@large_cases
@kernel_test(
    kernels=(tuned_matmul.matmul_in_blocks,),
    reference=matmul,
    domain={"ROWS_FIRST": (True, False), "K_TILES": (1, 2), "M_TILES": (1, 2),
            "N_TILES": (1, 2), "ROOM": (0, 160 * 1024), **SIZES},
    inputs={"lhs": "K M", "rhs": "K N"},
    parameters=("ROWS_FIRST", *TILES, "ROOM"),
    dtypes=DTYPES,
    rejects=[
        Rejection({**BLOCKS, "M": 128, "N": 1024, "K": 256}, match="M=128 is not a multiple"),
        Rejection({**BLOCKS, "M": 256, "N": 512, "K": 256}, match="N=512 is not a multiple"),
        Rejection({**BLOCKS, "M": 256, "N": 1024, "K": 128}, match="K=128 is not a multiple"),
        Rejection({**BLOCKS, "M": 256, "N": 1024, "K": 256},
                  match="different sizes: 256 and 128", shapes={"rhs": (128, 1024)}),
    ],
    examples=[
        {**BLOCKS, "M_TILES": 3, "N_TILES": 3, "M": 384, "N": 1536, "K": 512},  # sums in SBUF
        {**BLOCKS, **dict.fromkeys(TILES, 1), "ROWS_FIRST": False, **THREE_OF_EACH},
    ],
    edges=NIGHTLY,
)  # fmt: skip
def test_matmul_in_blocks(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(tuned_matmul.matmul_in_blocks,),
    reference=turned,
    domain={
        "K_TILES": (2,),
        "M_TILES": (2,),
        "N_TILES": (1,),
        "TURNED": (True,),
        **SIZES,
    },
    inputs={"lhs": "M K", "rhs": "K N"},
    parameters=(*TILES, "TURNED"),
    dtypes=DTYPES,
    edges=NIGHTLY,
)
def test_matmul_in_blocks_turned(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(tuned_matmul.matmul_rung,),
    reference=matmul,
    domain={
        "HOISTED": (True, False),
        "SUMS": (1, 2),
        "M": multiples(128, at_most=256),
        "N": multiples(512, at_most=1024),
        "K": multiples(128, at_most=256),
    },
    inputs={"lhsT": "K M", "rhs": "K N"},
    parameters=("HOISTED", "SUMS"),
    dtypes=DTYPES,
    rejects=[
        Rejection({"M": M, "N": N, "K": 128, "HOISTED": True, "SUMS": 1}, match=f"M={M} is not")
        for M, N in ((100, 512), (130, 514))  # of 128 and of 512 is left as much, 2
    ],
    examples=[{"HOISTED": HOISTED, "SUMS": 2, **THREE_OF_EACH} for HOISTED in (True, False)],
    edges=NIGHTLY,
)  # fmt: skip
def test_matmul_rung(case):
    case.check()

from difftest import Rejection, kernel_test, multiples, sizes
from kernels.classic import vector_add as classic
from kernels.nki import vector_add as todays
from reference.vector_add import vector_add
from tests.kernels.budget import NIGHTLY, in_turn, middling_cases

DTYPES = ("float32", "float16", "bfloat16")
B_VEC = r"a_vec has shape \(\d+,\), b_vec \(\d+,\)"
VECTORS = {"a_vec": "n", "b_vec": "n"}


@middling_cases
@kernel_test(
    kernels=(classic.vector_add_naive, todays.vector_add_naive),
    reference=vector_add,
    domain={"n": sizes(1, 128)},
    inputs=VECTORS,
    dtypes=DTYPES,
    rejects=[
        Rejection({"n": 129}, match="at most 128 elements, got 129"),
        Rejection({"n": 128}, match=B_VEC, shapes={"b_vec": (64,)}),
    ],
    nonfinite=True,
)
def test_vector_add_naive(case):
    case.check()


@middling_cases
@kernel_test(
    kernels=(classic.vector_add_tiled, todays.vector_add_tiled),
    reference=vector_add,
    domain={
        "ROW_CHUNK": sizes(1, 128),
        "n": lambda ROW_CHUNK: multiples(ROW_CHUNK, at_most=40 * ROW_CHUNK),
    },
    inputs=VECTORS,
    parameters=("ROW_CHUNK",),
    dtypes=DTYPES,
    rejects=[
        Rejection({"ROW_CHUNK": 256, "n": 25_600}, match="at most 128"),
        Rejection(
            {"ROW_CHUNK": 128, "n": 200}, match="not a multiple of ROW_CHUNK=128"
        ),
        Rejection({"ROW_CHUNK": 1, "n": 128}, match=B_VEC, shapes={"b_vec": (127,)}),
    ],
    examples=[
        {"ROW_CHUNK": 128, "n": n} for n in (25_600, 256_000) if n < 256_000 or NIGHTLY
    ],
    nonfinite=True,
)
def test_vector_add_tiled(case):
    case.check()


@middling_cases
@kernel_test(
    kernels=(classic.vector_add_stream, todays.vector_add_stream),
    reference=vector_add,
    domain={
        "FREE_DIM": sizes(1, 2048),
        "n": lambda FREE_DIM: multiples(
            128 * FREE_DIM, at_most=max(128 * FREE_DIM, 65_536)
        ),
    },
    inputs=VECTORS,
    parameters=("FREE_DIM",),
    dtypes=DTYPES,
    rejects=[
        Rejection(
            {"FREE_DIM": 2, "n": 128}, match=r"not a multiple of 128 \* FREE_DIM=2"
        ),
        Rejection({"FREE_DIM": 2, "n": 512}, match=B_VEC, shapes={"b_vec": (256,)}),
    ],
    examples=in_turn(
        DTYPES,
        VECTORS,
        {"FREE_DIM": 2, "n": 25_600},
        {"FREE_DIM": 1000, "n": 256_000},
        {"FREE_DIM": 2000, "n": 256_000},
    ),
    nonfinite=True,
)
def test_vector_add_stream(case):
    case.check()

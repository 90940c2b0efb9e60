from difftest import kernel_test, sizes
from kernels.nki.softmax import softmax_rows
from reference.softmax import softmax
from tests.kernels.budget import middling_cases
from tests.kernels.layers import DTYPES


@middling_cases
@kernel_test(
    kernel=softmax_rows,
    reference=softmax,
    domain={"T": sizes(1, 300), "N": sizes(1, 600)},
    inputs={"x": "T N"},
    dtypes=DTYPES,
    examples=[{"T": 128, "N": 8192}],
)
def test_softmax_rows(case):
    case.check()

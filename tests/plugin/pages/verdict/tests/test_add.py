import numpy as np
from candidate import add

from difftest import kernel_test, sizes


@kernel_test(
    kernel=add,
    reference=lambda a, b: a.astype(np.float64) + b,
    domain={"p": sizes(1, 128), "n": sizes(1, 512)},
    inputs={"a": "p n", "b": "p n"},
    dtypes=["float32", "bfloat16"],
)
def test_add(case):
    case.check()

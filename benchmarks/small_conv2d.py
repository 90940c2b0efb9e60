"""The contract of the convolution's ladder, of layers as small as they come."""

from difftest import kernel_test
from kernels.nki.conv2d_ladder.baseline import conv2d_baseline
from reference.conv2d_maxpool import conv2d_maxpool
from tests.kernels.layers import INPUTS, PARAMETERS, REJECTIONS, layers


@kernel_test(
    kernel=conv2d_baseline,
    reference=conv2d_maxpool,
    domain=layers(most_products=2**20, most_rows=8, filters=(1, 2)),
    inputs=INPUTS,
    parameters=PARAMETERS,
    rejects=REJECTIONS,
)
def test_conv2d(case):
    case.check()

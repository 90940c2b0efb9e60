"""Weights of experts that an index names, in the current dialect: W [experts, 128, columns].

x [128, 1] is multiplied with the weights of each expert that ``places`` [1, count] names.
"""

from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl


def tile(shape, dtype, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def experts(x, W, places):
    """The sum over the experts of ``x.T @ W[expert]``: each expert's weights are one DMA."""
    columns = W.shape[2]
    count = places.shape[1]
    token = tile(x.shape, x.dtype)
    index = tile(places.shape, places.dtype)
    nisa.dma_copy(dst=token, src=x)
    nisa.dma_copy(dst=index, src=places)
    total = tile((1, columns), nl.float32, nl.psum)
    for k in range(count):
        weights = tile((128, columns), W.dtype)
        nisa.dma_copy(dst=weights, src=W.select(0, index[:, k : k + 1]))
        nisa.nc_matmul(dst=total, stationary=token, moving=weights, accumulate=k > 0)
    out = tile((1, columns), x.dtype, nl.shared_hbm)
    row = tile((1, columns), x.dtype)
    nisa.tensor_copy(dst=row, src=total)
    nisa.dma_copy(dst=out, src=row)
    return out

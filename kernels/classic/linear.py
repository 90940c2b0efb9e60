"""A linear layer with GELU, as one kernel.

It follows a published kernel that is described in words (allenkchau/trainium-kernel-fusion at
d709ddf); it is not that kernel. All passes of the compiler work on it.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def linear_gelu(x, w, bias):
    """gelu(x.T @ w + bias), where each tile of the result loads its operands.

    Dimensions:
        K, M: multiples of 128
        N: a multiple of 512

    Args:
        x: [K, M] in HBM
        w: [K, N] in HBM, dtype of x
        bias: [1, N] in HBM, float32

    Returns:
        [M, N] in HBM, dtype of x

    Notes:
        - The text loads a tile of w once for each 128 rows of the result. The middle end of the
          compiler loads it once.

    Pseudocode:
        for each 128 rows and 512 columns of the result:
            total = sum over K of x.T @ w, 128 rows of both loaded at a time
            out = gelu(total + bias)
    """
    (K, M), (rows, N) = x.shape, w.shape
    assert rows == K, f"w has K = {K} rows: got {rows}"
    assert tuple(bias.shape) == (1, N), f"bias has shape (1, {N}): got {bias.shape}"
    assert K % 128 == M % 128 == N % 512 == 0, (
        f"K and M are multiples of 128, N of 512: got {K}, {M}, {N}"
    )
    out = nl.ndarray((M, N), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        rows = slice(m * 128, (m + 1) * 128)
        for n in nl.affine_range(N // 512):
            columns = slice(n * 512, (n + 1) * 512)
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // 128):
                deep = slice(k * 128, (k + 1) * 128)
                total += nisa.nc_matmul(
                    nl.load(x[deep, rows]), nl.load(w[deep, columns])
                )
            offset = nl.broadcast_to(nl.load(bias[:, columns]), shape=(128, 512))
            result = nl.gelu(nisa.tensor_tensor(total, offset, nl.add))
            nl.store(out[rows, columns], result)
    return out

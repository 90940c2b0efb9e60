"""The tiled matmul on the simulator, against its loop on bare arrays."""

import numpy as np
import pytest

from difftest.simulator import launch

SIZE = 1024
TILE_M = 128
TILE_K = 128
TILE_N = 512


def bare_loop(lhsT, rhs, result):
    """Compute the result of nki_matmul_tiled_ in its tiles, without the simulator."""
    (K, M), N = lhsT.shape, rhs.shape[1]
    for m in range(0, M, TILE_M):
        for n in range(0, N, TILE_N):
            total = np.zeros((TILE_M, TILE_N), np.float32)
            for k in range(0, K, TILE_K):
                lhsT_tile = lhsT[k : k + TILE_K, m : m + TILE_M]
                rhs_tile = rhs[k : k + TILE_K, n : n + TILE_N]
                total += np.matmul(lhsT_tile.T, rhs_tile)
            result[m : m + TILE_M, n : n + TILE_N] = total


def simulated(lhsT, rhs, result):
    from kernels.classic.matmul import nki_matmul_tiled_

    launch(nki_matmul_tiled_, (lhsT, rhs, result), record=False)


@pytest.mark.benchmark(group="matmul")
@pytest.mark.parametrize("run", [bare_loop, simulated])
def test_matmul(benchmark, run):
    random = np.random.default_rng(0)
    lhsT, rhs = random.random((2, SIZE, SIZE), dtype=np.float32)
    result = np.empty((SIZE, SIZE), np.float32)
    benchmark.pedantic(run, (lhsT, rhs, result), rounds=30, warmup_rounds=3)
    np.testing.assert_allclose(result, lhsT.T @ rhs, rtol=1e-4)

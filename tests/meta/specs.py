"""The specs of the Part 1 kernels, for kernels in their place that have a bug."""

from __future__ import annotations

from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.sizes import multiples, sizes
from reference.matmul import matmul
from reference.transpose import transpose
from reference.vector_add import vector_add

DTYPES = ("float32", "float16", "bfloat16")
VECTORS = {"a_vec": "n", "b_vec": "n"}


def naive(kernel) -> KernelSpec:
    return KernelSpec(
        kernel=kernel,
        reference=vector_add,
        domain={"n": sizes(1, 128)},
        inputs=VECTORS,
        dtypes=DTYPES,
    )


def tiled(kernel) -> KernelSpec:
    return KernelSpec(
        kernel=kernel,
        reference=vector_add,
        domain={
            "ROW_CHUNK": sizes(1, 128),
            "n": lambda ROW_CHUNK: multiples(ROW_CHUNK, at_most=8 * ROW_CHUNK),
        },
        inputs=VECTORS,
        parameters=("ROW_CHUNK",),
        dtypes=DTYPES,
    )


def stream(kernel) -> KernelSpec:
    return KernelSpec(
        kernel=kernel,
        reference=vector_add,
        domain={
            "FREE_DIM": sizes(1, 64),
            "n": lambda FREE_DIM: multiples(128 * FREE_DIM, at_most=8 * 128 * FREE_DIM),
        },
        inputs=VECTORS,
        parameters=("FREE_DIM",),
        dtypes=DTYPES,
    )


def transposition(kernel) -> KernelSpec:
    return KernelSpec(
        kernel=kernel,
        reference=transpose,
        domain={"M": multiples(128, at_most=384), "N": multiples(128, at_most=384)},
        inputs={"a_tensor": "M N"},
        dtypes=DTYPES,
    )


def product(kernel) -> KernelSpec:
    """With the tile sizes drawn, so that the smallest product is 1 x 1 x 1."""

    def up_to_three(of):
        return multiples(of, at_most=3 * of)

    return KernelSpec(
        kernel=kernel,
        reference=matmul,
        domain={
            "TILE_M": sizes(1, 128),
            "TILE_K": sizes(1, 128),
            "TILE_N": sizes(1, 128),
            "M": lambda TILE_M: up_to_three(TILE_M),
            "K": lambda TILE_K: up_to_three(TILE_K),
            "N": lambda TILE_N: up_to_three(TILE_N),
        },
        inputs={"lhsT": "K M", "rhs": "K N"},
        outputs={"result": "M N"},
        parameters=("TILE_M", "TILE_K", "TILE_N"),
        dtypes=DTYPES,
    )

"""Realistic classic kernels are migrated completely and validated."""

import ast
import textwrap

from hypothesis import strategies as st

from difftest.simulator.frontend.levels import GONE
from difftest.tools.migration import rules
from difftest.tools.migration.rewriting import migrate_source
from difftest.tools.migration.validation import (
    Sources,
    ValidationSettings,
    calls_of_shapes,
    validate_translation,
)
from tests.every import every

HEAD = """\
import math
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc.nki.typing import tensor


@nki.jit
def kernel({parameters}):
"""
SIZES = {
    "rows": st.sampled_from([1, 100, 128, 129, 300]),
    "few": st.sampled_from([2, 5]),
}
KERNELS = {
    "a mask over arange, in tiles of rows": (
        ("a",),
        [("rows", 96)],
        """
        rows, columns = a.shape
        out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
        i_f = nl.arange(columns)[None, :]
        for t in nl.affine_range(math.ceil(rows / 128)):
            i_p = t * 128 + nl.arange(128)[:, None]
            tile = nl.load(a[i_p, i_f], mask=(i_p < rows))
            twice = nl.exp(tile, mask=(i_p < rows))
            nl.store(out[i_p, i_f], value=twice, mask=(i_p < rows))
        return out
        """,
    ),
    "a mask with a name, on both axes": (
        ("a",),
        [("rows", "few")],
        """
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for t in nl.affine_range(math.ceil(a.shape[0] / 128)):
            ip, jf = nl.mgrid[0:128, 0:8]
            inside = (t * 128 + ip < a.shape[0]) & (jf <= a.shape[1] - 1)
            tile = nl.load(a[t * 128 + ip, jf], mask=inside)
            tile[ip, jf] = nl.add(tile, 1.5, mask=inside)
            total = nl.sum(tile[ip, jf], axis=1, mask=inside)
            tile[...] = nisa.tensor_scalar(tile, np.subtract, total, mask=inside)
            nl.store(out[t * 128 + ip, jf], tile[ip, jf], mask=inside)
        return out
        """,
    ),
    "blocks with one index, and a last column with a factor of 0": (
        ("a",),
        [(256, 64)],
        """
        out = nl.ndarray((2, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        ends = nl.ndarray((256, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray((2, nl.par_dim(128), 64), dtype=a.dtype, buffer=nl.sbuf)
        ip = nl.arange(128)[:, None]
        one = nl.arange(1)[None, :]
        for k in nl.affine_range(2):
            blocks[k] = nl.load(a[k * 128 : (k + 1) * 128, :])
        for k in nl.affine_range(2):
            tile = nl.copy(blocks[k])
            nl.store(out[k], tile)
            nl.store(ends[k * 128 + ip, one], tile[ip, 63 + 0 * one])
        return out, ends
        """,
    ),
    "operators, reductions and columns": (
        ("a", "g"),
        [(128, 64), (1, 64)],
        """
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ip = nl.arange(128)[:, None]
        jf = nl.arange(64)[None, :]
        x: tensor[128, 64] = nl.load(a[ip, jf])
        gain = nl.load(g[nl.arange(1)[:, None], jf])
        mean = nl.sum(x, axis=[1]) / 64
        centred = x - mean
        scale = nl.rsqrt(nl.sum(centred * centred, axis=[1]) * (1 / 64) + 1.0)
        result = centred * scale * gain.broadcast_to((128, 64))
        result += 0.5
        nl.store(out[ip, jf], 1.0 - (-result))
        return out
        """,
    ),
    "a sum of products over block dimensions": (
        ("lhsT", "rhs"),
        [(256, 128), (256, 512)],
        """
        out = nl.ndarray((128, 512), dtype=lhsT.dtype, buffer=nl.shared_hbm)
        i_l = nl.mgrid[0:128, 0:128]
        i_r = nl.mgrid[0:128, 0:512]
        left = nl.ndarray((2, nl.par_dim(128), 128), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(2):
            left[k, i_l.p, i_l.x] = nl.load(lhsT[k * 128 + i_l.p, i_l.x])
        total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            right = nl.load(rhs[k * 128 + i_r.p, i_r.x])
            total += nl.matmul(left[k, i_l.p, i_l.x], right, transpose_x=True)
        nl.store(out[i_r.p, i_r.x], value=total)
        return out
        """,
    ),
    "masked reductions, spread over a tile": (
        ("a",),
        [("rows", 40)],
        """
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        rows, columns = a.shape
        i_p = nl.arange(128)[:, None]
        i_f = nl.arange(columns)[None, :]
        for t in nl.affine_range((rows + 127) // 128):
            row = t * 128 + i_p
            tile = nl.load(a[row, i_f], mask=row < rows)
            most = nl.max(tile, axis=1, keepdims=True, mask=row < rows)
            power = nl.exp(nl.subtract(tile, most, mask=row < rows), mask=row < rows)
            total = nl.sum(power, axis=1, keepdims=True, mask=row < rows)
            share = nl.divide(power, total, mask=row < rows)
            nl.store(out[row, i_f], value=share, mask=row < rows)
        return out
        """,
    ),
    "statistics, two names at once": (
        ("a",),
        [(100, 96)],
        """
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a[nl.mgrid[0:100, 0:96]], dtype=np.float32)
        stats = nisa.bn_aggr(nisa.bn_stats(tile))
        mean, var = stats[:, 0], stats[:, 1]
        scale = nl.rsqrt(var + 1e-5)
        result = nisa.tensor_scalar(tile, np.subtract, mean, op1=np.multiply, operand1=scale)
        nl.store(out[nl.mgrid[0:100, 0:96]], value=result)
        return out
        """,
    ),
    "pooling windows": (
        ("a",),
        [("few", 4, 6)],
        """
        c, h, w = a.shape
        out = nl.ndarray((c, h // 2, w // 2), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        i0, i1, i2, i3, i4 = nl.mgrid[0:c, 0:h // 2, 0:2, 0:w // 2, 0:2]
        pooled = nl.max(tile[i0, 2 * i1 + i2, 2 * i3 + i4], axis=[2, 4])
        nl.store(out, pooled)
        return out
        """,
    ),
    "every other column, and a transposed load": (
        ("a",),
        [(64, 96)],
        """
        out = nl.ndarray((96, 32), dtype=a.dtype, buffer=nl.shared_hbm)
        i = nl.arange(96)[:, None]
        j = nl.arange(64)[None, :]
        turned = nl.load(a[j, i])
        k = nl.arange(32)[None, :]
        nl.store(out[i, k], turned[i, 2 * k + 1])
        return out
        """,
    ),
    "itemsize, and a new axis": (
        ("a",),
        [(128, 12)],
        """
        out = nl.ndarray((128, 3, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        assert a.itemsize in (2, 4)
        tile = nl.load(a)
        three = tile.reshape((128, 3, 4))
        result = nisa.tensor_tensor(three, tile[:, 2:3, None], nl.subtract, dtype=np.float32)
        biggest = nisa.tensor_reduce(np.max, result, axis=[2])
        nisa.dma_copy(dst=out, src=result)
        nisa.dma_copy(dst=out[:, :, 0], src=biggest)
        return out
        """,
    ),
}


def classic(parameters, body):
    text = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return HEAD.format(parameters=", ".join(parameters)) + text + "\n"


@every("name", KERNELS)
def test_a_kernel_is_carried_over_whole(name, tmp_path):
    parameters, shapes, body = KERNELS[name]
    result = migrate_source(classic(parameters, body))
    assert result.left == ()
    assert result.kernels == {"kernel"}
    for word in (
        "mask",
        "mgrid",
        "arange",
        "par_dim",
        "neuronxcc",
        "tensor[",
        ".itemsize",
    ):
        assert word not in result.text
    files = [tmp_path / "old.py", tmp_path / "new.py"]
    for file, text in zip(files, (classic(parameters, body), result.text), strict=True):
        file.write_text(text)
    calls = calls_of_shapes(shapes, SIZES, ["float32", "bfloat16"], {}, (), 4)
    proof = validate_translation(
        *map(Sources, files), "kernel", calls, ValidationSettings()
    )
    assert len(proof.same) == len(calls)


CHANGING = {
    "a start that a loop changes": """
        i = nl.arange(128)[:, None]
        j = nl.arange(4)[None, :]
        for t in range(2):
            x = nl.load(a[i, j])
            i = i + 128
        """,
    "a number that a loop changes": """
        start = 0
        i = start + nl.arange(128)[:, None]
        j = nl.arange(4)[None, :]
        for t in range(2):
            x = nl.load(a[i, j])
            start += 128
        """,
    "one of two ways": """
        if a.shape[0] > 128:
            i = nl.arange(128)[:, None]
        else:
            i = nl.arange(64)[:, None]
        x = nl.load(a[i, nl.arange(4)[None, :]])
        """,
    "a mask of one of two ways": """
        i = nl.arange(128)[:, None]
        m = i < 100
        if a.shape[0] > 128:
            m = i < 128
        x = nl.load(a[i, nl.arange(4)[None, :]], mask=m)
        """,
}


@every("name", CHANGING)
def test_an_index_that_changes_is_left(name):
    left = migrate_source(classic(("a",), CHANGING[name])).left
    assert rules.LOST in left or rules.MASK in left
    assert GONE["nl.arange"] in left


OVERLAPPING = """
    tile = nl.load(a)
    i, j, k = nl.mgrid[0:128, 0:8, 0:3]
    windows = nl.copy(tile[i, j + k])
    diagonal = nl.copy(tile[i, i])
    blocks = nl.ndarray((4, nl.par_dim(128), 8), dtype=nl.float32)
    helper(blocks)
    """


def test_indices_that_no_slice_expresses_are_left():
    result = migrate_source(classic(("a",), OVERLAPPING))
    assert result.left.count(rules.NOT_AFFINE) == 2
    assert GONE["nl.par_dim"] in result.left
    ast.parse(result.text)


REPEATED = """
    tile = nl.load(a)
    i = nl.arange(128)[:, None]
    j = nl.arange(8)[None, :]
    nl.store(out[i, j], tile[i, 0 * j])
    """


def test_an_element_that_is_repeated_is_left():
    assert rules.NOT_AFFINE in migrate_source(classic(("a", "out"), REPEATED)).left

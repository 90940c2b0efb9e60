"""Scaled dot product attention."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.softmax import exponentials, reciprocal_of
from kernels.nki.tiles import load_rows, multiply, transpose_columns

HIDDEN = -1e30
"""The score of a key that a query may not see: exp of it, less the largest score, is 0."""


@nki.jit
def attention_heads(q, k, v, causal=False):
    """softmax(q @ k.T / sqrt(D)) @ v for each head.

    Dimensions:
        H: heads of q, a multiple of G
        G: heads of k and v
        Sq, Sk: queries and keys, any number; if causal, no more queries than keys
        D: elements of a head, at most 128

    Args:
        q: [H, Sq, D] in HBM; float32, float16 or bfloat16
        k, v: [G, Sk, D] in HBM, dtype of q; head h of q uses head h // (H // G) of these
        causal: whether a query sees the keys up to its own position alone, the last query the
            last key

    Returns:
        [H, Sq, D] in HBM, dtype of q

    Notes:
        - The scores of 128 queries lie whole in SBUF, [128, Sk] in float32.
        - Scores and weights are float32 until the weights are rounded into the dtype of v for the
          last product; the sum divides last, a column for each query.

    Pseudocode:
        for each head of k and v: turn the keys
            for each head of q that uses it, for each 128 queries:
                scores = q @ k.T / sqrt(D), hidden where a key comes too late
                out = exp(scores - max(scores)) @ v / sum(exp(scores - max(scores)))
    """
    H, Sq, D = q.shape
    G, Sk, _ = k.shape
    check_contract(q, k, v, causal)
    pmax = nl.tile_size.pmax
    out = nl.ndarray((H, Sq, D), dtype=q.dtype, buffer=nl.shared_hbm)
    for g in range(G):
        keys = []
        for tile in load_rows(k[g]):
            keys.append(transpose_columns(tile)[0])
        values = load_rows(v[g])
        for h in range(g * (H // G), (g + 1) * (H // G)):
            for first in range(0, Sq, pmax):
                rows = slice(first, min(first + pmax, Sq))
                queries = transpose_columns(load_rows(q[h, rows, :])[0])[0]
                scores = score(queries, keys, D**-0.5)
                if causal:
                    hide_later(scores, first + Sk - Sq)
                result = weigh(scores, values, q.dtype)
                nisa.dma_copy(dst=out[h, rows, :], src=result)
    return out


def check_contract(q, k, v, causal):
    """Reject arguments that the kernel does not accept; each text has the rule and the numbers."""
    (H, Sq, D), (G, Sk, _) = q.shape, k.shape
    assert k.shape == v.shape == (G, Sk, D), (
        f"k and v have shape {(G, Sk, D)}: got {k.shape} and {v.shape}"
    )
    assert nl.tile_size.pmax >= D, (
        f"a head has at most {nl.tile_size.pmax} elements: got {D}"
    )
    assert H % G == 0, f"the heads of q are a multiple of those of k: got {H} and {G}"
    assert not causal or Sq <= Sk, (
        f"with a causal mask there are no more queries than keys: got {Sq} and {Sk}"
    )
    assert q.dtype == k.dtype == v.dtype, (
        f"q, k and v have one dtype: got {q.dtype}, {k.dtype}, {v.dtype}"
    )


def score(queries, keys, scale):
    """scale * q @ k.T for queries [D, rows] and tiles of keys [D, 128]: [rows, Sk] in SBUF."""
    width = 0
    for tile in keys:
        width += tile.shape[1]
    scores = nl.ndarray((queries.shape[1], width), dtype=nl.float32, buffer=nl.sbuf)
    first = 0
    for tile in keys:
        place = scores[:, first : first + tile.shape[1]]
        nisa.activation(
            dst=place, op=nl.copy, data=multiply([queries], [tile]), scale=scale
        )
        first += tile.shape[1]
    return scores


def hide_later(scores, position):
    """Mask the keys after each query's own position; the first query is at ``position``."""
    nisa.affine_select(
        dst=scores,
        pattern=[[-1, scores.shape[1]]],
        channel_multiplier=1,
        offset=position,
        on_true_tile=scores,
        on_false_value=HIDDEN,
        cmp_op=nl.greater_equal,
    )


def weigh(scores, values, dtype):
    """softmax(scores) @ values, for values in tiles of 128 rows: [rows, D] in SBUF."""
    powers, total = exponentials(scores)
    rounded = nl.ndarray(powers.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=rounded, src=powers)
    product = multiply(transpose_columns(rounded), values)
    result = nl.ndarray(product.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(
        dst=result, data=product, op0=nl.multiply, operand0=reciprocal_of(total)
    )
    return result

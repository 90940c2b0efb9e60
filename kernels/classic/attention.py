"""Attention in two ways: in phases that meet in HBM, and fused.

Both follow published kernels that are described in words (allenkchau/trainium-kernel-fusion at
d709ddf); they are not those kernels. Scores, weights and the second product are float32. All passes
of the compiler work on them.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def attention_in_phases(q, k, v):
    """softmax(q.T @ k) @ v.T in three phases, with the scores and the weights in HBM.

    Dimensions:
        S: queries and keys, a multiple of 512

    Args:
        q, k, v: [128, S] in HBM, one dtype; a column is a query, a key, a value

    Returns:
        [S, 128] in HBM, dtype of q

    Pseudocode:
        scores = q.T @ k, 128 queries at a time
        weights = exp(scores - max(scores)) / sum(exp(scores - max(scores)))
        out = weights @ v.T, through transposes of 128 x 128
    """
    size, count = check_contract(q, k, v)
    scores = nl.ndarray((count, count), dtype=nl.float32, buffer=nl.private_hbm)
    weights = nl.ndarray((count, count), dtype=nl.float32, buffer=nl.private_hbm)
    out = nl.ndarray((count, size), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = nl.load(q), nl.load(k), nl.load(v)
    for i in nl.affine_range(count // 128):
        rows = slice(i * 128, (i + 1) * 128)
        nl.store(scores[rows, :], score(queries[:, rows], keys))
    for i in nl.affine_range(count // 128):
        rows = slice(i * 128, (i + 1) * 128)
        powers, total = exponentials(nl.load(scores[rows, :]))
        share = nisa.tensor_scalar(powers, nl.multiply, nl.reciprocal(total))
        nl.store(weights[rows, :], share)
    turned_values = transpose_columns(values)
    for i in nl.affine_range(count // 128):
        rows = slice(i * 128, (i + 1) * 128)
        turned = transpose_columns(nl.load(weights[rows, :]))
        product = multiply(turned, turned_values)
        nl.store(out[rows, :], nl.copy(product))
    return out


@nki.jit
def fused_attention(q, k, v):
    """softmax(q.T @ k) @ v.T without an intermediate in HBM; the sum divides last.

    Dimensions, arguments and result are as in `attention_in_phases`.

    Pseudocode:
        for each 128 queries:
            scores = q.T @ k
            powers = exp(scores - max(scores))
            out = powers @ v.T / sum(powers)
    """
    size, count = check_contract(q, k, v)
    out = nl.ndarray((count, size), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = nl.load(q), nl.load(k), nl.load(v)
    turned_values = transpose_columns(values)
    for i in nl.affine_range(count // 128):
        rows = slice(i * 128, (i + 1) * 128)
        powers, total = exponentials(score(queries[:, rows], keys))
        product = multiply(transpose_columns(powers), turned_values)
        share = nisa.tensor_scalar(product, nl.multiply, nl.reciprocal(total))
        nl.store(out[rows, :], share)
    return out


def check_contract(q, k, v):
    """Reject arguments that the kernels do not accept; return the size and the count of values."""
    size, count = q.shape
    assert q.shape == k.shape == v.shape, (
        f"q, k and v have one shape: got {q.shape}, {k.shape}, {v.shape}"
    )
    assert size == 128, f"a query has 128 elements: got {size}"
    assert count % 512 == 0, f"the queries are a multiple of 512: got {count}"
    return size, count


def score(queries, keys):
    """queries.T @ keys for queries [128, 128] and keys [128, S]: [128, S] in SBUF, float32."""
    count = keys.shape[1]
    row = nl.ndarray((128, count), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(count // 512):
        columns = slice(j * 512, (j + 1) * 512)
        row[:, columns] = nl.copy(nisa.nc_matmul(queries, keys[:, columns]))
    return row


def exponentials(scores):
    """exp(scores - max(scores)), and its sum [128, 1], for scores [128, S]; 512 at a time."""
    count = scores.shape[1]
    parts = count // 512
    maxima = nl.ndarray((128, parts), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((128, parts), dtype=nl.float32, buffer=nl.sbuf)
    powers = nl.ndarray((128, count), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(parts):
        columns = slice(j * 512, (j + 1) * 512)
        maxima[:, j : j + 1] = nl.max(scores[:, columns], axis=1, keepdims=True)
    largest = nl.max(maxima, axis=1, keepdims=True)
    for j in nl.affine_range(parts):
        columns = slice(j * 512, (j + 1) * 512)
        lowered = nisa.tensor_scalar(scores[:, columns], nl.subtract, largest)
        powers[:, columns] = nl.exp(lowered)
        sums[:, j : j + 1] = nl.sum(powers[:, columns], axis=1, keepdims=True)
    return powers, nl.sum(sums, axis=1, keepdims=True)


def transpose_columns(tile):
    """The transposes of 128 columns each of a tile [128, S]: [128, S] in SBUF, float32."""
    turned = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(tile.shape[1] // 128):
        columns = slice(j * 128, (j + 1) * 128)
        turned[:, columns] = nl.copy(nisa.nc_transpose(tile[:, columns]))
    return turned


def multiply(turned, turned_values):
    """The sum over blocks of 128 columns of turned.T @ turned_values: [128, 128] in PSUM."""
    product = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
    for j in nl.affine_range(turned.shape[1] // 128):
        columns = slice(j * 128, (j + 1) * 128)
        product += nisa.nc_matmul(turned[:, columns], turned_values[:, columns])
    return product

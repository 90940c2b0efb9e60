"""The operands of a tap's product as the early rungs make them: copied, and cast to float32."""

import nki.isa as nisa
import nki.language as nl


def float32_copy(tile):
    """A copy of a tile in SBUF, float32."""
    copy = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def turned_tap(filters, tap):
    """One tap of filters [c_out, c_in, tap] as [c_in, c_out] in PSUM, float32: copied, turned."""
    c_out, c_in, _ = filters.shape
    turned = nl.ndarray((c_in, c_out), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=float32_copy(filters[:, :, tap]))
    return turned


def transposed_tap(filters, tap):
    """One tap of filters [c_out, c_in, tap] as [c_in, c_out] in SBUF: copied, turned, copied."""
    return float32_copy(turned_tap(filters, tap))


def add_product(total, stationary, moving):
    """Add stationary.T @ moving to ``total``, which is in SBUF: the sum leaves PSUM each time."""
    product = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving, accumulate=False)
    nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)

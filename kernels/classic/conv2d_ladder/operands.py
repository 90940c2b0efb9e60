"""The operands of a tap's product as the early rungs make them: copied, and cast to float32."""

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def float32_copy(tile):
    """A copy of an SBUF tile in float32."""
    return nisa.tensor_copy(tile, dtype=nl.float32)


def transposed_tap(filters, tap):
    """One tap of filters [c_out, c_in, tap] as [c_in, c_out] in SBUF: copied, turned, copied."""
    return nisa.tensor_copy(nisa.nc_transpose(float32_copy(filters[:, :, tap])))

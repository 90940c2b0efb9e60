"""What the compiler was seen to refuse on each machine, and what this project does about each.

Source: records of the compiler's answers, most of them foxl-ai/kiln docs/neuron-notes.md, SDK 2.32.
"""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """One thing that the compiler refuses: what, where, and who says so here."""

    what: str
    machines: str
    rules: tuple[str, ...] = ()
    simulator: str = "runs it"
    reason: str = ""
    """Why no rule looks for it."""


_REFUSES = "refuses it"
_HOST = "it is not in a kernel"

REFUSALS = (
    Refusal("arithmetic on GpSimd", "trn1", ("NKI501",)),
    Refusal("two operands of a Vector instruction in PSUM", "all", (), _REFUSES),
    Refusal("tensor_copy on the Scalar Engine", "trn1", (), _REFUSES),
    Refusal("activation(op=nl.copy) with a tile as bias", "all", ("NKI502",)),
    Refusal("operand0 of tensor_scalar in bfloat16", "all", (), _REFUSES),
    Refusal("the operator mod", "trn1", ("NKI503",)),
    Refusal(
        "activation_reduce(square, add)",
        "trn2",
        reason="an older SDK that is not named; 2.32 compiles it",
    ),
    Refusal("nc_match_replace8 with dst_idx", "trn1", ("NKI504",)),
    Refusal("range_select", "trn1", (), _REFUSES),
    Refusal("MX matmuls", "trn1, trn2", (), _REFUSES),
    Refusal("tiles of 32 x 32 of the PE array", "trn1", (), _REFUSES),
    Refusal("a transpose that is not float32", "trn1", ("NKI505",)),
    Refusal("a transpose that changes the dtype", "trn2", (), "warns of it"),
    Refusal("float8_e4m3fn in a graph, or beside float8_e4m3", "trn1, trn2", ("NKI506",)),
    Refusal("a float8_e4m3fn operand of a matmul", "trn2", (), _REFUSES),
    Refusal("several indices a partition in an indirect DMA", "trn1", ("NKI525",)),
    Refusal("dge_mode.hwdge; on trn2 with an offset for each row", "trn1, trn2", (), _REFUSES),
    Refusal("dma_transpose on chip or by indices", "trn1", ("NKI526",)),
    Refusal("the offset of a register in a compute instruction", "trn1", ("NKI523",)),
    Refusal(
        "tensor_copy in SBUF at a run-time offset",
        "trn2",
        reason="AWS's pages show it; the record names no form that fails",
    ),
    Refusal("register_store to SBUF", "trn1", ("NKI507",)),
    Refusal("PSUM across the border of a device loop", "trn1", ("NKI541",)),
    Refusal("a static DMA of an input in a device loop", "trn1", ("NKI542",)),
    Refusal(
        "a DMA that skips indices in a device loop",
        "trn1",
        reason="only where the compiler would spill its tensor",
    ),
    Refusal("nested device loops", "trn1", ("NKI543",)),
    Refusal("programs with other device loops", "trn2", ("NKI544",)),
    Refusal(
        "a collective of one program alone",
        "trn2",
        reason="a trace is of one rank; not done",
    ),
    Refusal(
        "collectives on SBUF or on inputs", "trn1", reason="not done; the table of codes has it"
    ),
    Refusal("a DMA from one row to many partitions, classic", "trn2", ("NKI528",)),
    Refusal("more partitions than the first one allows", "all", ("NKI521",)),
    Refusal("a step of an element beyond 16 bits", "all", ("NKI522",)),
    Refusal("a pattern on chip whose first step is not the row", "all", (), _REFUSES),
    Refusal("an address over the scratch of software DMAs", "all", (), _REFUSES),
    Refusal("addresses for some tensors", "all", ("NKI524",)),
    Refusal("more than 5,000,000 instructions", "all", ("NKI531",)),
    Refusal("affine_select with four dimensions", "trn2", ("NKI508",)),
    Refusal("activation_reduce of more than 16384 elements", "trn2", ("NKI509",)),
    Refusal("too many descriptors", "trn1", ("NKI530",)),
    Refusal("NCC_EARG001, NCC_ESPP004, NCC_EVRF059 and others", "all", reason=_HOST),
    Refusal("a DMA out of SBUF at the offset of a tile", "trn2", ("NKI529",)),
    Refusal("a tile of a device loop, copied in a static loop", "trn1", ("NKI545",)),
    Refusal("a bfloat16 slot in PSUM that is not aligned to 4 bytes", "all", ("NKI510",)),
    Refusal("a DMA transpose to rows that are not 32 bytes apart", "all", ("NKI527",)),
    Refusal(
        "a reshaped view with a partition step of 0 at one token",
        "all",
        reason="a trace has a step of 0 for a dimension of 1 in correct views as well",
    ),
)
"""In the order in which they were collected."""

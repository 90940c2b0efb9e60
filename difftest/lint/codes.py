"""Codes and texts of the compiler and the runtime: what each means, and what to do.

Sources: AWS's table of codes (aws-neuron/neuron-agentic-development,
``skills/neuron-nki-debugging/references/compiler-error-codes.md``), its release notes, and records
of the compiler's answers in public threads and repositories, named with each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_AWS = "AWS's table of codes"
_ISSUE = "aws-neuron-sdk issue "
_KILN = "foxl-ai/kiln docs/neuron-notes.md, SDK 2.32"
_MOE = "KevGomes1403/nki-moe-megakernel notes, trn2"


class Cause(NamedTuple):
    """What makes the compiler say a code.

    ``rules`` are the linter's that look for it in a kernel.
    """

    meaning: str
    remedy: str
    source: str
    rules: tuple[str, ...] = ()


_SPLIT = "split the graph: tensor or pipeline parallelism, or several smaller kernels"
_SMALLER = "a smaller batch, or tensor or pipeline parallelism"
_OPERATORS = "see `neuronx-cc list-operators --framework XLA`, and write it with other operators"

CODES: dict[str, Cause] = {
    "NCC_EVRF001": Cause("the graph has an operator that Neuron does not have", _OPERATORS, _AWS),
    "NCC_EUOC002": Cause("the graph has an operator that Neuron does not have", _OPERATORS, _AWS),
    "NCC_EVRF004": Cause(
        "the graph has a complex dtype", "compute real and imaginary parts as two tensors", _AWS
    ),
    "NCC_EVRF005": Cause(
        "a float8 of the FNUZ kinds reaches the compiler", "cast to bfloat16 or float16", _AWS
    ),
    "NCC_EVRF006": Cause(
        "a random number generator other than the default is asked for",
        "leave the algorithm out",
        _AWS,
    ),
    "NCC_EVRF007": Cause("the graph becomes too many instructions", _SPLIT, _AWS),
    "NCC_EBVF030": Cause(
        "the kernel or graph becomes too many instructions (more than 5,000,000)",
        "unroll less: a device loop (nl.fori_loop), larger tiles, or several kernels",
        f"{_AWS}; {_KILN}",
        rules=("NKI531",),
    ),
    "NCC_EXTP004": Cause("the graph becomes too many instructions", _SPLIT, _AWS),
    "NCC_EVRF009": Cause("the activations of the graph do not fit in HBM", _SMALLER, _AWS),
    "NCC_EXSP001": Cause("the activations of the graph do not fit in HBM", _SMALLER, _AWS),
    "NCC_EOOM001": Cause("the tensors of the graph do not fit in HBM", _SMALLER, _AWS),
    "NCC_EOOM002": Cause("the tensors of the graph do not fit in HBM", _SMALLER, _AWS),
    "NCC_EVRF010": Cause(
        "a convolution dilates its input and its filter", "dilate one of them", _AWS
    ),
    "NCC_EVRF011": Cause(
        "a convolution has strides and a dilated input", "leave one of them out", _AWS
    ),
    "NCC_EVRF013": Cause("topk got integers", "cast to a float dtype before", _AWS),
    "NCC_EVRF015": Cause("a custom call has an unknown target", "name a known target", _AWS),
    "NCC_EHCA005": Cause("a custom call has an unknown target", "name a known target", _AWS),
    "NCC_EVRF016": Cause(
        "a scatter reduces integers or booleans", "cast to a float dtype before", _AWS
    ),
    "NCC_EVRF017": Cause("reduce_window has a base dilation", "leave the dilation out", _AWS),
    "NCC_EVRF018": Cause("reduce_window has a window dilation", "leave the dilation out", _AWS),
    "NCC_EVRF019": Cause(
        "reduce_window reduces several tensors at once", "reduce them one by one", _AWS
    ),
    "NCC_EVRF022": Cause(
        "an arithmetic shift to the right of something that has not 32 bits",
        "cast to int32 before",
        _AWS,
    ),
    "NCC_EVRF024": Cause("an output has more than 4 GB", "return it in parts, or shard it", _AWS),
    "NCC_EVRF031": Cause(
        "a scatter goes beyond its operand", "make the indices as long as the dimension", _AWS
    ),
    "NCC_EVRF051": Cause(
        "float8_e4m3fn in a graph for trn1 or trn2, whose float8_e4m3 ends at 240",
        "use float8_e4m3; or, below 240, --experimental-unsafe-fp8e4m3fn-as-fp8e4m3",
        _KILN,
        rules=("NKI506",),
    ),
    "NCC_EVRF066": Cause(
        "the grid of the launch differs from the logical NeuronCore's degree",
        "launch with the degree that NEURON_LOGICAL_NC_CONFIG and --lnc have",
        "the pages of v2.33",
    ),
    "NCC_EOCP001": Cause(
        "float8_e4m3 and float8_e4m3fn are in one graph",
        "use one of the two",
        _KILN,
        rules=("NKI506",),
    ),
    "NCC_EARG001": Cause(
        "this machine has no logical NeuronCores of that degree",
        "degree 1 on trn1; 1 or 2 on trn2 and trn3",
        _AWS,
    ),
    "NCC_ESFH002": Cause(
        "a 64-bit constant does not fit in 32 bits", "use constants of 32 bits", _AWS
    ),
    "NCC_ESPP004": Cause(
        "code is asked for in a dtype that has none", "float32, bfloat16 or float16", _AWS
    ),
    "NCC_ESPP047": Cause(
        "a float8 dtype that the machine does not have",
        "bfloat16 or float16, or trn2 and newer",
        _AWS,
    ),
    "NCC_IXCG965": Cause(
        "an instruction is not one of GpSimd's on trn1",
        "name no engine, or the vector engine",
        _KILN,
        rules=("NKI501",),
    ),
    "NCC_IXCG863": Cause(
        "nl.mod is no operator of the hardware",
        "compute it in two steps",
        _KILN,
        rules=("NKI503",),
    ),
    "NCC_IXCG864": Cause(
        "the operators of an instruction do not go together",
        "split it: activation, then tensor_reduce",
        _MOE,
    ),
    "NCC_IXCG832": Cause(
        "register_store goes to HBM alone on trn1",
        "store to HBM, and copy it to SBUF",
        _KILN,
        rules=("NKI507",),
    ),
    "NCC_IXCG967": Cause(
        "a step of an access pattern does not fit in 16 bits",
        "reshape, or copy in pieces, so that steps stay below 32768 elements",
        _KILN,
        rules=("NKI522",),
    ),
    "NCC_IBVF043": Cause(
        "activation(op=nl.copy) takes an immediate bias, and got a tensor",
        "use nisa.tensor_scalar to add it",
        f"{_KILN}; {_ISSUE}1296",
        rules=("NKI502",),
    ),
    "NCC_INLA001": Cause(
        "an instruction with an operand that the machine's instruction does not have",
        "leave out dst_idx, dynamic offsets on chip, or the fourth dimension",
        f"{_KILN}; {_MOE}",
        rules=("NKI504", "NKI508"),
    ),
    "NCC_IBIR030": Cause(
        "an offset of a register without an access pattern", "pass it to .ap(scalar_offset=)", _KILN
    ),
    "NCC_IBIR040": Cause(
        "a matmul's operand is larger than 128 x 128 stationary or 512 moving",
        "loop over tiles; a register offset in an operand shows as this, too",
        _KILN,
    ),
    "NCC_IBIR058": Cause(
        "trn1 has no tiles of the PE array smaller than the array",
        "leave tile_position and tile_size out",
        _KILN,
    ),
    "NCC_IBIR092": Cause(
        "a tensor in PSUM crosses the border of a device loop",
        "allocate it in the body, and keep what is carried in SBUF",
        _KILN,
        rules=("NKI541",),
    ),
    "NCC_IBIR158": Cause(
        "the first step of .ap on chip is not the tensor's free size",
        "begin the pattern with [free size, partitions]",
        _KILN,
    ),
    "NCC_IBIR428": Cause("collectives on SBUF begin with trn2", "use tensors in HBM", _KILN),
    "NCC_IBIR530": Cause(
        "an instruction begins with a newer machine: MX with trn3, range_select with trn2",
        "compile for that machine, or write it with other instructions",
        _KILN,
    ),
    "NCC_IBIR829": Cause(
        "an operand on chip has an offset from a register",
        "offsets of registers are for DMAs",
        _KILN,
        rules=("NKI523",),
    ),
    "NCC_IBCG901": Cause(
        "a DMA broadcasts one partition to others by a step of 0",
        "broadcast by a matmul with ones, or load once for each partition",
        "Jerry2423/kda-for-trainium, trn2, classic",
        rules=("NKI528",),
    ),
    "NCC_ILLC059": Cause(
        "a collective is issued by one program of two", "issue it in both programs", _KILN
    ),
    "NCC_IXGM002": Cause(
        "the two programs of a logical NeuronCore have different control flow",
        "give both the same loops and branches; a device loop needs the grid of 2",
        f"{_KILN}; {_ISSUE}1388",
        rules=("NKI544",),
    ),
    "NCC_IXLV002": Cause(
        "the two programs of a logical NeuronCore differ in what they issue",
        "give both the same instructions",
        f"{_ISSUE}1298",
    ),
    "NCC_ISQI001": Cause(
        "a static DMA of an input stands inside a device loop",
        "let it be dynamic: leave dge_mode out, or give it an offset of the loop",
        _KILN,
        rules=("NKI542",),
    ),
    "NCC_IGCA103": Cause(
        "a DMA that skips indices stands inside a device loop, and its tensor would be spilled",
        "move it out of the loop, or use fewer live tensors",
        _KILN,
    ),
    "NCC_EGCA111": Cause(
        "some tensors of the kernel have addresses and others have none",
        "give all of them an address, or none",
        f"{_KILN}; {_MOE}",
        rules=("NKI524",),
    ),
    "NCC_IGCA044": Cause(
        "some tensors of the kernel have addresses and others have none",
        "give all of them an address, or none",
        _KILN,
        rules=("NKI524",),
    ),
    "NCC_ISCH714": Cause(
        "an instruction reads what another one wrote by an aliased address",
        "use one tensor for both",
        "awslabs/nki-autotune learnings, trn2",
    ),
    "NLA001": Cause(
        "a tensor does not fit where it was to be placed",
        "`difftest profile` shows the live tensors: use smaller tiles, or free them sooner",
        f"{_ISSUE}1036 and 1118",
    ),
    "TEN404": Cause(
        "the compiler failed inside on a pattern of the kernel",
        "change the form: AWS's answers name reshapes of free dimensions and += outside matmul",
        f"{_ISSUE}1152",
    ),
}
"""By code, as a log prints it."""

TEXTS: dict[str, Cause] = {
    r"cannot both read from PSUM": Cause(
        "a Vector instruction got two operands in PSUM", "copy one of them to SBUF", _KILN
    ),
    r"must be float32, got": Cause(
        "the vector operand of tensor_scalar is not float32",
        "make that tile float32",
        f"{_KILN}; {_MOE}",
    ),
    r"immediate dtype must be fp32": Cause(
        "the vector operand of tensor_scalar is not float32", "make that tile float32", _MOE
    ),
    r"does not support engine\.scalar on NeuronCore-v2": Cause(
        "tensor_copy is not one of the Scalar Engine's on trn1",
        "nisa.activation(op=nl.copy)",
        _KILN,
    ),
    r"dst dtype must be float32 on gen2": Cause(
        "on trn1 a transpose writes float32 in PSUM",
        "make dst float32",
        _KILN,
        rules=("NKI505",),
    ),
    r"dst dtype must match input dtype on gen3": Cause(
        "since trn2 a transpose keeps its input's dtype", "make dst of the input's dtype", _KILN
    ),
    r"free dimensions total elements must be 1": Cause(
        "an indirect DMA takes one index a partition",
        "pass indices of shape (P, 1)",
        _KILN,
        rules=("NKI525",),
    ),
    r"hwdge is only supported for NeuronCore-v3": Cause(
        "trn1 has no hardware descriptors", "leave dge_mode out", _KILN
    ),
    r"transpose only supported for HBM->SB": Cause(
        "dma_transpose on trn1 goes from HBM to SBUF",
        "nisa.nc_transpose on chip",
        _KILN,
        rules=("NKI526",),
    ),
    r"partitions starting at partition (32|64|96)": Cause(
        "an operand begins at partition 32, 64 or 96 and is too long for that",
        "begin at partition 0; 32 partitions at 32 and 96, 64 at 64",
        _KILN,
        rules=("NKI521",),
    ),
    r"does not dominate this use": Cause(
        "a value of a device loop's body is used outside of it",
        "keep it in a tensor that is made before the loop",
        f"{_KILN}; {_ISSUE}1346 and 1354",
        rules=("NKI543",),
    ),
    r"must-pinned memloc DynamicDMAScratchLoc": Cause(
        "an address in SBUF lies over the scratch of software DMAs",
        "leave the last 16 KiB of each partition free",
        f"{_KILN}; {_MOE}",
    ),
    r"Descriptor limit reached": Cause(
        "the kernel has too many static descriptors",
        "fewer and larger DMAs, or dynamic ones",
        _KILN,
        rules=("NKI530",),
    ),
    r"Out of memory in sbuf": Cause(
        "the live tiles do not fit SBUF",
        "`difftest profile` shows them: use smaller tiles or fewer buffers",
        f"{_ISSUE}1060",
    ),
    r"Unable to allocate|std::bad_alloc|Killed|MemoryError": Cause(
        "the compiler itself ran out of memory",
        "unroll less, or compile where more memory is",
        f"{_ISSUE}1374",
    ),
    r"\bstatus(?:_code)?[ =:]+(?:1006|1204)\b": Cause(
        "the device found an address outside a tensor: most often an index of a gather",
        "run the kernel on the simulator, which names the index",
        _KILN,
    ),
    r"\bstatus(?:_code)?[ =:]+1003\b": Cause(
        "the device made a NaN",
        "run the kernel under `difftest check`, which says where",
        f"{_ISSUE}673",
    ),
}
"""By a pattern of a text that comes without a code."""

_CODE = re.compile(r"\b(?:NCC_[A-Z]{4}\d{3}|NLA\d{3}|TEN\d{3})\b")
_LINE = re.compile(r"([\w./-]+\.py)(?:\", line |:)(\d+)")


class Explained(NamedTuple):
    """What a log says: the code or text, its cause if it is known, and the kernel's lines."""

    said: str
    cause: Cause | None
    lines: tuple[str, ...]


def explain(log: str) -> Iterator[Explained]:
    """Each code and each known text of a log, once, with the lines of Python beside it."""
    codes: dict[str, list[str]] = {}
    rows = log.splitlines()
    for number, row in enumerate(rows):
        near = "\n".join(rows[max(0, number - 2) : number + 3])
        lines = [f"{file}:{line}" for file, line in _LINE.findall(near)]
        said = _CODE.findall(row)
        said += [match.group(0) for text in TEXTS if (match := re.search(text, row))]
        for one in said:
            codes.setdefault(one, []).extend(lines)
    for one, lines in codes.items():
        yield Explained(one, cause_of(one), tuple(dict.fromkeys(lines)))


def cause_of(said: str) -> Cause | None:
    """The row of a code, or of a text that is known."""
    if said in CODES:
        return CODES[said]
    return next((row for text, row in TEXTS.items() if re.search(text, said)), None)

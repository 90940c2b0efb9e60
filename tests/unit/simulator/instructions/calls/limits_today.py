"""The limits of the current dialect's own instructions, and of register commands."""

from difftest.simulator import (
    TRN1,
    TRN2,
    TRN3,
    BufferError,
    DtypeError,
    Engine,
    KernelError,
    LimitError,
    ShapeError,
)
from difftest.simulator.instructions.alu import ALU_OPS as A
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.limits import (
    A_TILE,
    GPSIMD_IN_PSUM,
    IN_PSUM,
    INTEGERS,
    limit,
    tile,
)
from tests.unit.simulator.instructions.calls.limits_computing import activated
from tests.unit.simulator.instructions.calls.limits_moving import ranged, selected
from tests.unit.simulator.instructions.calls.uses import Use

IDLE = Accumulate.IDLE
RESET = Accumulate.RESET
REDUCE = Accumulate.REDUCE
FRESH = Accumulate.RESET_REDUCE
LOAD = Accumulate.LOAD_REDUCE
COLUMN = tile(4, 1)
LOADS_NOTHING = "commands(idle, reset, reduce, reset_reduce, read)"
KNOWS = "knows only some commands"

# -- the registers ---------------------------------------------------------------------------------


def exponential(command=FRESH, start=None, src=A_TILE, into=None, machine=TRN3):
    operands = {"src": src, "max_value": 0.0, "reduce_init": start}
    return Use(operands, (command,), A_TILE, (into,), machine=machine)


def cumulative(op0="add", op1="add", command=FRESH, start=None):
    return Use(
        {"src": A_TILE, "imm0": 0.0, "imm1": start}, (A[op0], A[op1], command), A_TILE
    )


def reduced(op="add", command=FRESH, start=None):
    operands = {"data": A_TILE, "operand0": 1.0, "reduce_init": start}
    return Use(operands, (A["add"], A[op], command, False), others=(COLUMN,))


def activated2(
    ops=("multiply", "add"), command=FRESH, reduce_op="add", into=None, **given
):
    operands = {
        "data": A_TILE,
        "imm0": given.get("imm0", 1.0),
        "imm1": given.get("imm1", 0.0),
    }
    first, second = (op and A[op] for op in ops)
    reverse = given.get("reverse", False)
    options = (
        "copy",
        first,
        second,
        False,
        reverse,
        reduce_op and A[reduce_op],
        command,
    )
    machine = given.get("machine", TRN3)
    return Use(
        {**operands, "relu_param": 0.0}, options, A_TILE, (into,), machine=machine
    )


for name, rule, legal, illegal in (
    ("activation", LOADS_NOTHING, activated("add"), activated("add", LOAD)),
    ("activate2", LOADS_NOTHING, activated2(), activated2(command=LOAD)),
    ("range_select", LOADS_NOTHING, ranged(), ranged(command=LOAD)),
    ("select_reduce", LOADS_NOTHING, selected(), selected(command=LOAD)),
    (
        "exponential",
        "commands(idle, reset_reduce, reduce, load_reduce)",
        exponential(LOAD, 0.0),
        exponential(RESET),
    ),
    (
        "tensor_scalar_cumulative",
        "commands(reset_reduce, reduce, load_reduce)",
        cumulative(command=LOAD, start=0.0),
        cumulative(command=IDLE),
    ),
    (
        "tensor_scalar_reduce",
        "commands(reset_reduce, reduce, load_reduce)",
        reduced(command=REDUCE),
        reduced(command=RESET),
    ),
):
    limit(name, rule, legal, illegal, KernelError, KNOWS)
for name, use in (("tensor_scalar_reduce", reduced), ("exponential", exponential)):
    for illegal in (use(command=LOAD), use(command=REDUCE, start=0.0)):
        limit(
            name,
            "loads(reduce_init)",
            use(command=LOAD, start=COLUMN),
            illegal,
            KernelError,
            "takes reduce_init with reduce_cmd.load_reduce",
        )
limit(
    "tensor_scalar_reduce",
    "_registers_do_not_subtract",
    reduced("subtract"),
    reduced("subtract", REDUCE),
    KernelError,
    "registers do not subtract",
)
for name, legal, illegal in (
    ("exponential", exponential(into=COLUMN), exponential(IDLE, into=COLUMN)),
    ("activate2", activated2(into=COLUMN), activated2(command=IDLE, into=COLUMN)),
):
    limit(name, "read_if_used", legal, illegal, KernelError, "only if it uses them")

# -- exponential, tensor_scalar_cumulative, activate2 ----------------------------------------------

limit(
    "exponential",
    "_dimensions",
    exponential(src=tile(4, 2, 2, 2)),
    exponential(src=tile(4, 1, 2, 2, 2)),
    LimitError,
    "at most 4 dimensions",
)
for rule, illegal, text in (
    ("arithmetic(op0)", cumulative("bitwise_and"), "an arithmetic operator"),
    ("one_of(op1)", cumulative(op1="divide"), "few operators"),
    ("vector_ops(op0)", cumulative("rsqrt"), "op=rsqrt"),
):
    limit("tensor_scalar_cumulative", rule, cumulative(), illegal, KernelError, text)
limit(
    "tensor_scalar_cumulative",
    "_loads_imm1",
    cumulative(command=LOAD, start=1.0),
    cumulative(command=LOAD),
    KernelError,
    "loads its registers from imm1",
)
for illegal, text in (
    (activated2(("add", "add")), "one of six pairs"),
    (activated2(("add", None), reverse=True), "takes reverse1 with an op1"),
):
    limit(
        "activate2",
        "_first_stage",
        activated2(("add", None)),
        illegal,
        KernelError,
        text,
    )
limit(
    "activate2",
    "one_dtype(imm0, imm1)",
    activated2(imm0=COLUMN, imm1=COLUMN),
    activated2(imm0=COLUMN, imm1=tile(4, 1, dtype="bfloat16")),
    DtypeError,
    "imm0 and imm1 of one dtype",
)
for illegal in (activated2(reduce_op=None), activated2(reduce_op="multiply")):
    limit(
        "activate2",
        "_reduces",
        activated2(reduce_op="minimum"),
        illegal,
        KernelError,
        "reduces with few operators",
    )

# -- gathers, sums of tensors, random numbers ------------------------------------------------------


def gathered(partitions=4, dtype="float32"):
    operands = {"data": A_TILE, "indices": tile(partitions, 3, dtype="uint32")}
    return Use(operands, (), tile(partitions, 3, dtype=dtype))


limit(
    "nc_n_gather",
    "same_partitions(data, indices)",
    gathered(),
    gathered(3),
    ShapeError,
    "same number of partitions",
)
limit(
    "nc_n_gather",
    "one_dtype(data, dst)",
    gathered(),
    gathered(dtype="bfloat16"),
    DtypeError,
    "data and dst of one dtype",
)


def counted(shape=(4, 9), offset=0, machine=TRN2):
    return Use(
        {"src": A_TILE}, (offset, -1), tile(*shape, dtype="int32"), machine=machine
    )


for shape in ((4, 8), (3, 9)):
    limit(
        "nonzero_with_count",
        "_one_more",
        counted(),
        counted(shape),
        ShapeError,
        "one element a",
    )
for offset in (2**31, 0.5):
    limit(
        "nonzero_with_count",
        "_int32_options",
        counted(offset=2**31 - 1),
        counted(offset=offset),
        KernelError,
        "index_offset as an int32",
    )


def largest(k=8, n=64, partitions=32, into=32):
    found = tile(into, k, dtype="bfloat16")
    operands = {"src": tile(partitions, 4, dtype="bfloat16")}
    return Use(operands, (n,), found, (tile(into, k, dtype="uint32"),))


limit(
    "topk",
    "same_partitions(src, dst)",
    largest(),
    largest(into=16),
    ShapeError,
    "partitions",
)
for kept, broken, said in (
    ({}, {"partitions": 24, "into": 24}, "partitions are a multiple of 16"),
    ({"n": 8}, {"n": 7}, "n is 8 to 65535"),
    ({"n": 64}, {"n": 65}, "src has n elements in each 16 partitions"),
    ({"k": 8, "n": 8}, {"k": 9, "n": 8}, "at most n and 32767 elements"),
):
    limit("topk", "_snakes", largest(**kept), largest(**broken), LimitError, said)


def summed(second=A_TILE, op="add", scales=None):
    operands = {f"src{number}": None for number in range(16)}
    return Use({**operands, "src0": A_TILE, "src1": second}, (A[op], scales), A_TILE)


limit(
    "dma_compute",
    f"same_size(dst, {', '.join(f'src{k}' for k in range(16))})",
    summed(tile(8, 4)),
    summed(tile(8, 5)),
    ShapeError,
    "same number of elements",
)
for rule, illegal, text in (
    ("one_of(reduce_op)", summed(op="multiply"), "dma_compute adds"),
    ("_scales", summed(scales=(1.0,)), "scales each source by 1.0"),
    ("_scales", summed(scales=(1.0, 2.0)), "scales each source by 1.0"),
):
    limit("dma_compute", rule, summed(scales=(1.0, 1.0)), illegal, KernelError, text)
limit(
    "rng",
    "no_gpsimd_in_psum",
    Use({}, (), INTEGERS, engine=Engine.GPSIMD),
    Use({}, (), IN_PSUM._replace(dtype="int32"), engine=Engine.GPSIMD),
    BufferError,
    GPSIMD_IN_PSUM,
)


def uniform(machine=TRN3):
    return Use({"min": 0.0, "max": 1.0}, (), A_TILE, machine=machine)


# -- MX --------------------------------------------------------------------------------------------

E4M3 = "float8_e4m3fn_x4"


def quantized(partitions=64, free=8, scale=(64, 2), machine=TRN3):
    return Use(
        {"src": tile(partitions, free, dtype="bfloat16")},
        (),
        tile(partitions, max(1, free // 4), dtype=E4M3),
        (tile(*scale, dtype="uint8"),),
        machine=machine,
    )


limit(
    "quantize_mx",
    "_whole_quadrants(src)",
    quantized(),
    quantized(40),
    ShapeError,
    "a multiple of 32 partitions",
)
limit(
    "quantize_mx",
    "_fours",
    quantized(),
    quantized(free=10),
    ShapeError,
    "a multiple of 4 elements",
)
limit(
    "quantize_mx",
    "_scale_fits",
    quantized(scale=(36, 2)),
    quantized(scale=(35, 2)),
    ShapeError,
    "at least 36 partitions",
)


def product(
    depth=(32, 32), free=(8, 8), scale=(4, 8), position=(), size=(), machine=TRN3
):
    operands = {
        "stationary": tile(depth[0], free[0], dtype=E4M3),
        "moving": tile(depth[1], free[1], dtype=E4M3),
        "stationary_scale": tile(scale[0], free[0], dtype="uint8"),
        "moving_scale": tile(scale[0], free[1], dtype="uint8"),
    }
    dst = tile(min(free[0], 128), min(free[1], 4096), space=IN_PSUM.space)
    return Use(operands, (False, position, size), dst, machine=machine)


limit(
    "nc_matmul_mx",
    "_whole_quadrants(stationary, moving)",
    product((64, 64), scale=(64, 8)),
    product((72, 72), scale=(72, 8)),
    ShapeError,
    "a multiple of 32 partitions",
)
limit(
    "nc_matmul_mx",
    "one_contraction",
    product(),
    product((32, 64), scale=(64, 8)),
    ShapeError,
    "contracts over the partitions",
)
for legal, illegal, text in (
    (product(free=(128, 8)), product(free=(130, 8)), "even number"),
    (product(free=(6, 8)), product(free=(7, 8)), "even number"),
    (product(free=(2, 512)), product(free=(2, 4097)), "up to 4096"),
):
    limit("nc_matmul_mx", "_sizes", legal, illegal, LimitError, text)
limit(
    "nc_matmul_mx",
    "_both_scales",
    product(scale=(4, 8)),
    product(scale=(3, 8)),
    ShapeError,
    "at least 4 partitions",
)
for position, size, text in (
    ((0, 0), (), "both are set"),
    ((0, 0), (32, 64), "tiles rows only"),
    ((16, 0), (32, 128), "multiple of them"),
    ((128, 0), (32, 128), "is inside the PE array"),
):
    limit(
        "nc_matmul_mx",
        "_row_tile",
        product(position=(96, 0), size=(32, 128)),
        product(position=position, size=size),
        KernelError,
        text,
    )
limit(
    "nc_matmul_mx",
    "_row_tile",
    product((64, 64), scale=(64, 8), position=(64, 0), size=(64, 128)),
    product((64, 64), scale=(64, 8), position=(64, 0), size=(32, 128)),
    KernelError,
    "at least the stationary tile's size",
)

# -- generations -----------------------------------------------------------------------------------

for name, used in (
    ("exponential", exponential),
    ("activate2", activated2),
    ("rand2", uniform),
    ("quantize_mx", quantized),
    ("nc_matmul_mx", product),
):
    limit(
        name,
        "needs_generation(4)",
        used(),
        used(machine=TRN2),
        KernelError,
        "NeuronCore-v4",
    )
limit(
    "nonzero_with_count",
    "needs_generation(3)",
    counted(),
    counted(machine=TRN1),
    KernelError,
    "NeuronCore-v3",
)

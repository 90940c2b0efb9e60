"""The limits of the instructions that compute."""

import dataclasses

from difftest.simulator import (
    TRN1,
    TRN3,
    BufferError,
    DtypeError,
    Engine,
    KernelError,
    LimitError,
    NotModelledError,
    ShapeError,
    Space,
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
from tests.unit.simulator.instructions.calls.uses import Tensor, Use

PSUM = Space.PSUM
VECTOR = Engine.VECTOR
SCALAR = Engine.SCALAR
GPSIMD = Engine.GPSIMD
TENSOR = Engine.TENSOR

# -- activation ------------------------------------------------------------------------------------


def activated(op, command=Accumulate.RESET_REDUCE):
    return Use({"data": A_TILE, "scale": 1.0, "bias": None}, ("exp", A[op], command))


# -- statistics, dropout, scan ---------------------------------------------------------------------


def data(shape, **given):
    return Use({"data": tile(*shape, **given)})


limit(
    "bn_aggr", "_bn_tuples", data((4, 9)), data((4, 10)), ShapeError, "a multiple of 3"
)
limit(
    "bn_stats", "_bn_length", data((4, 512)), data((4, 513)), LimitError, "at most 512"
)
limit("bn_stats", "_bn_length", data((4, 2, 256)), data((4, 257, 2)), LimitError, "514")


def dropped(dtype, *, prob=0.5, wanted=None):
    return Use({"data": tile(4, 8, dtype=dtype), "prob": prob}, dtype=wanted)


limit(
    "dropout",
    "_keeps_integers",
    dropped("float32", wanted="int16"),
    dropped("int32", wanted="int16"),
    DtypeError,
    "keeps their dtype",
)
HALF = tile(4, 1, dtype="bfloat16")
limit(
    "dropout",
    "_probability_of_integers",
    dropped("float16", prob=HALF),
    dropped("int8", prob=HALF),
    DtypeError,
    "a float32 vector",
)


def scanned(data0=A_TILE, data1=A_TILE, op0="add", op1="multiply"):
    return Use(
        {"data0": data0, "data1": data1, "initial": 0.0}, (A[op0], A[op1], False, False)
    )


limit(
    "tensor_tensor_scan",
    "not_both_in_psum(data0, data1)",
    scanned(IN_PSUM),
    scanned(IN_PSUM, IN_PSUM),
    BufferError,
    "not both in PSUM",
)
for wrong in (tile(4, 9), tile(5, 8)):
    limit(
        "tensor_tensor_scan",
        "same_partitions_and_free_size(data0, data1)",
        scanned(data1=tile(4, 2, 4)),
        scanned(data1=wrong),
        ShapeError,
        "same number of",
    )
for rule, illegal, text in (
    ("arithmetic(op0, op1)", scanned(op1="bitwise_and"), "takes arithmetic operators"),
    ("binary(op0, op1)", scanned(op1="abs"), "a binary operator"),
    ("vector_ops(op0, op1)", scanned(op0="power"), "op=power"),
):
    limit("tensor_tensor_scan", rule, scanned(), illegal, KernelError, text)

# -- the Tensor Engine -----------------------------------------------------------------------------


def product(
    depth=(32, 32), columns=32, rows=8, position=(), size=(), dst=None, **given
):
    operands = {"stationary": tile(depth[0], columns), "moving": tile(depth[1], rows)}
    return Use(operands, (False, position, size, "none"), dst, **given)


def in_float8(first="float8_e4m3", second="float8_e5m2", pairs=(), size=(), **given):
    shapes = (32, *pairs, 16), (32, *pairs, 8)
    dtypes = (first, second)
    left, right = (
        Tensor(shape, one) for shape, one in zip(shapes, dtypes, strict=True)
    )
    options = (False, (0, 0) if size else (), size, "double_row" if pairs else "none")
    return Use({"stationary": left, "moving": right}, options, **given)


limit(
    "nc_matmul",
    "one_contraction",
    product((32, 32)),
    product((32, 31)),
    ShapeError,
    "32 and 31 partitions",
)
for illegal, text in (
    (in_float8("float8_e4m3fn"), "float8_e4m3fn on NeuronCore-v4"),
    (in_float8("float8_e4m3fn", "float8_e4m3", machine=TRN3), "does not mix"),
):
    legal = in_float8("float8_e4m3fn", machine=TRN3)
    limit("nc_matmul", "_float8", legal, illegal, DtypeError, text)
for illegal, text in (
    (in_float8(pairs=(2,), machine=TRN1), "needs NeuronCore-v3"),
    (in_float8("bfloat16", pairs=(2,)), "both operands are of float8"),
    (in_float8(pairs=(4,)), "the first free dimension of both operands is 2"),
    (in_float8(pairs=(2,), size=(32, 64)), "does not go with column tiling"),
):
    legal = in_float8(pairs=(2,), size=(32, 128))
    limit("nc_matmul", "_double_row", legal, illegal, KernelError, text)
for legal, illegal, text in (
    (
        {"rows": 4096, "machine": TRN3},
        {"rows": 4097, "machine": TRN3},
        "is at most 4096",
    ),
    ({"rows": 512}, {"rows": 513}, "moving operand is at most 512"),
    (
        {"columns": 128, "rows": 512},
        {"columns": 129},
        "stationary operand is at most 128",
    ),
):
    limit(
        "nc_matmul",
        "_free_sizes",
        product(**legal),
        product(**illegal),
        LimitError,
        text,
    )
for legal, illegal, text in (
    (((0, 0), (32, 64)), ((0, 0), ()), "both are set"),
    (((32, 64), (32, 64)), ((32, 48), (32, 64)), "multiples of 32"),
    (((0, 0), (32, 32)), ((0, 0), (0, 32)), "at least the stationary tile's size"),
    (((64, 64), (64, 64)), ((96, 64), (64, 64)), "is inside the PE array"),
):
    limit("nc_matmul", "_pe_tile", product((32, 32), 32, 8, *legal),
          product((32, 32), 32, 8, *illegal), KernelError, text)  # fmt: skip
limit(
    "nc_matmul",
    "_pe_tile",
    product(position=(0, 0), size=(32, 64), machine=TRN1),
    product(position=(0, 0), size=(32, 32), machine=TRN1),
    KernelError,
    "need NeuronCore-v3",
)


def columns_of_psum(start, count):
    return tile(32, 1024, space=PSUM, part=(slice(0, 32), slice(start, start + count)))


limit(
    "nc_matmul",
    "one_bank",
    product(rows=16, dst=columns_of_psum(496, 16)),
    product(rows=16, dst=columns_of_psum(497, 16)),
    LimitError,
    "one PSUM bank",
)


def transposed(shape, engine, space=Space.SBUF, dst=None):
    return Use({"data": Tensor(shape, "float32", space)}, (), dst, engine=engine)


for legal, illegal, engine in (
    ((128, 128), (128, 129), TENSOR),
    ((128, 128), (128, 129), VECTOR),
):
    limit("nc_transpose", "_transposable", transposed(legal, engine), transposed(illegal, engine),
          LimitError, f"a transpose on the {engine.value} engine")  # fmt: skip
for illegal in ((32, 33), (33, 32)):
    limit("nc_transpose", "_transposable", transposed((32, 32), VECTOR, dst=tile(32, 32)),
          transposed(illegal, VECTOR, dst=tile(*illegal[::-1])), LimitError,
          "a transpose on the vector engine takes at most 32 x 32")  # fmt: skip
limit(
    "nc_transpose",
    "_transposable",
    transposed((4, 8), VECTOR, PSUM),
    transposed((4, 8), TENSOR, PSUM),
    BufferError,
    "nc_transpose on the Tensor Engine takes data in sbuf",
)
limit(
    "nc_transpose",
    "_tensor_engine_writes_psum",
    transposed((4, 8), VECTOR, dst=tile(8, 4)),
    transposed((4, 8), TENSOR, dst=tile(8, 4)),
    BufferError,
    "takes dst in psum",
)

# -- arithmetic ------------------------------------------------------------------------------------


def binary(op="add", data1=A_TILE, data2=A_TILE, **given):
    return Use({"data1": data1, "data2": data2}, (A[op],), **given)


def tensor_tensor(rule, legal, illegal, error, text):
    limit("tensor_tensor", rule, legal, illegal, error, text)


tensor_tensor("binary(op)", binary(), binary("abs"), KernelError, "a binary operator")
tensor_tensor(
    "same_partitions(data1, data2)",
    binary(data2=tile(4, 1)),
    binary(data2=tile(1, 8)),
    ShapeError,
    "same number of partitions",
)
tensor_tensor(
    "_one_rank",
    binary(data1=tile(4, 4, 8), data2=tile(4, 1, 8)),
    binary(data1=tile(4, 4, 8)),
    ShapeError,
    "same number of dimensions",
)
tensor_tensor(
    "not_both_in_psum(data1, data2)",
    binary(data1=IN_PSUM),
    binary(data1=IN_PSUM, data2=IN_PSUM),
    BufferError,
    "not both in PSUM",
)
tensor_tensor(
    "no_gpsimd_in_psum",
    binary("maximum", data1=IN_PSUM, engine=VECTOR),
    binary("power", data1=IN_PSUM),
    BufferError,
    GPSIMD_IN_PSUM,
)
tensor_tensor(
    "no_gpsimd_in_psum",
    binary(data1=INTEGERS, data2=INTEGERS, dst=tile(4, 8, dtype="int32")),
    binary(data1=INTEGERS, data2=INTEGERS, dst=tile(4, 8, dtype="int32", space=PSUM)),
    BufferError,
    GPSIMD_IN_PSUM,
)
tensor_tensor(
    "of_integers(op)",
    binary("bitwise_or", INTEGERS, INTEGERS),
    binary("bitwise_or", INTEGERS, A_TILE, dtype="int32"),
    DtypeError,
    "data2 of float32",
)
tensor_tensor(
    "of_integers(op)",
    binary("bitwise_or", INTEGERS, INTEGERS, dtype="uint8"),
    binary("bitwise_or", INTEGERS, INTEGERS, dtype="float32"),
    DtypeError,
    "result of float32",
)


def scalar(op0="add", op1=None, data=A_TILE, **given):
    operands = {"data": data, "operand0": 1.0, "operand1": None if op1 is None else 1.0}
    return Use(
        operands, (A[op0], False, None if op1 is None else A[op1], False), **given
    )


def tensor_scalar(rule, legal, illegal, error, text):
    limit("tensor_scalar", rule, legal, illegal, error, text)


tensor_scalar(
    "one_kind(op0, op1)",
    scalar("bitwise_or", "bitwise_and", INTEGERS),
    scalar("bitwise_or", "add", INTEGERS),
    KernelError,
    "both bitvec or both arithmetic",
)
tensor_scalar(
    "of_integers(op0)",
    scalar("bitwise_or", data=INTEGERS, dtype="uint16"),
    scalar("bitwise_or", data=INTEGERS, dtype="bfloat16"),
    DtypeError,
    "result of bfloat16",
)
tensor_scalar(
    "of_integers(op0)",
    scalar("add"),
    scalar("bitwise_or"),
    DtypeError,
    "data of float32",
)
for op0, op1 in (("add", "multiply"), ("multiply", "multiply"), ("maximum", None)):
    tensor_scalar(
        "_scalar_engine_pairs",
        scalar("multiply", "add", engine=SCALAR),
        scalar(op0, op1, engine=SCALAR),
        KernelError,
        "has few operators",
    )
tensor_scalar(
    "no_gpsimd_in_psum",
    scalar("rsqrt", engine=GPSIMD),
    scalar("rsqrt", data=IN_PSUM),
    BufferError,
    GPSIMD_IN_PSUM,
)


def both(op0="add", op1="add", data=A_TILE, operand1=A_TILE, **given):
    operands = {"data": data, "operand0": 1.0, "operand1": operand1}
    return Use(operands, (A[op0], False, A[op1], False), **given)


def scalar_tensor_tensor(rule, legal, illegal, error, text):
    limit("scalar_tensor_tensor", rule, legal, illegal, error, text)


scalar_tensor_tensor(
    "_one_shape", both(), both(operand1=tile(4, 1)), ShapeError, "of one shape"
)
scalar_tensor_tensor(
    "not_both_in_psum(data, operand1)",
    both(operand1=IN_PSUM),
    both(data=IN_PSUM, operand1=IN_PSUM),
    BufferError,
    "not both in PSUM",
)
OF_FLOATS = both("bitwise_or", "bitwise_or")
for rule, legal, illegal, error, text in (
    (
        "one_kind(op0, op1)",
        both(),
        both(op1="bitwise_or"),
        KernelError,
        "both bitvec or both",
    ),
    ("vector_ops(op0, op1)", both("maximum"), both("power"), KernelError, "op=power"),
    (
        "of_integers(op1)",
        both("equal", "less"),
        OF_FLOATS,
        DtypeError,
        "data of float32",
    ),
):
    scalar_tensor_tensor(rule, legal, illegal, error, text)

# -- reductions ------------------------------------------------------------------------------------


def across(op, values=A_TILE, **given):
    return Use({"data": values}, (A[op],), **given)


def along(op, values=A_TILE, negate=False, axes=(1,), **given):
    return Use({"data": values}, (A[op], axes, negate, False), **given)


ACROSS = "tensor_partition_reduce"
ALONG = "tensor_reduce"
limit(
    ACROSS,
    "one_of(op)",
    across("maximum"),
    across("minimum"),
    KernelError,
    "few operators",
)
limit(
    ACROSS,
    "of_integers(op)",
    across("bitwise_or", INTEGERS),
    across("bitwise_or"),
    DtypeError,
    "data of float32",
)
limit(
    ALONG,
    "of_integers(op)",
    along("bitwise_or", INTEGERS),
    along("bitwise_or", INTEGERS, dtype="float32"),
    DtypeError,
    "result of float32",
)
limit(
    ALONG,
    "_not_negated",
    along("add", INTEGERS, negate=True),
    along("bitwise_or", INTEGERS, negate=True),
    KernelError,
    "negate goes with arithmetic",
)


def with_scalar(op0="add", reduce_op="add"):
    options = (A[op0], A[reduce_op], Accumulate.RESET_REDUCE, False)
    operands = {"data": A_TILE, "operand0": 1.0, "reduce_init": None}
    return Use(operands, options, others=(tile(4, 1),))


FEW = with_scalar(reduce_op="logical_or")
LAST = with_scalar("maximum")
for rule, legal, illegal, text in (
    (
        "arithmetic(op0)",
        with_scalar("multiply"),
        with_scalar("bitwise_or"),
        "an arithmetic",
    ),
    ("one_of(reduce_op)", with_scalar(reduce_op="minimum"), FEW, "few reductions"),
    ("vector_ops(op0)", LAST, with_scalar("rsqrt"), "op=rsqrt"),
):
    limit("tensor_scalar_reduce", rule, legal, illegal, KernelError, text)

CUBE = tile(4, 2, 8)
for legal, illegal, text in (
    (
        along("add", CUBE, axes=(1, 2)),
        along("add", CUBE, axes=(0, 1, 2)),
        "reduces free axes",
    ),
    (along("add", CUBE, axes=(2,)), along("add", CUBE, axes=(3,)), "axes 1 to 2"),
    (
        along("add", CUBE, axes=(2,)),
        along("add", CUBE, axes=(2, 2)),
        "reduces free axes",
    ),
):
    limit(ALONG, "_axes", legal, illegal, ShapeError, text)
limit(
    ALONG,
    "one_of(op)",
    along("minimum"),
    along("divide"),
    KernelError,
    "that can reduce",
)
limit(
    "activation",
    "one_of(reduce_op)",
    activated("add", Accumulate.IDLE),
    activated("maximum", Accumulate.IDLE),
    NotModelledError,
    "with add only",
)
limit(
    "activation",
    "read_if_used",
    dataclasses.replace(activated("add"), others=(tile(4, 1),)),
    dataclasses.replace(activated("add", Accumulate.IDLE), others=(tile(4, 1),)),
    KernelError,
    "only if it uses them",
)
limit(
    "activation",
    "_bias",
    Use(
        {"data": A_TILE, "scale": 1.0, "bias": None},
        activated("add").options,
        others=(None,),
    ),
    Use(
        {"data": A_TILE, "scale": 1.0, "bias": 1.0},
        activated("add").options,
        others=(None,),
    ),
    KernelError,
    "one element in each partition",
)
WITHOUT_OPERATOR = {"data": A_TILE, "operand0": 1.0, "operand1": 1.0}
tensor_scalar(
    "_second_step",
    scalar("add", "multiply"),
    Use(WITHOUT_OPERATOR, (A["add"], False, None, False)),
    KernelError,
    "op1",
)

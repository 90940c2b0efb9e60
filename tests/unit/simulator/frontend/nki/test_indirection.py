"""`NkiTensor.indirect` on NeuronCore-v4, against NumPy's fancy indexing."""

import numpy as np
import pytest

from difftest.simulator import (
    TRN2,
    BufferError,
    DtypeError,
    KernelError,
    NotModelledError,
    OutOfBoundsError,
    ShapeError,
)
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions import every_record
from difftest.simulator.machine import TRN3
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, raised

GPSIMD = nisa.engine.gpsimd
RANDOM = np.random.default_rng(0)
DATA = RANDOM.integers(-50, 50, (16, 24)).astype(np.float32)
OFFSETS = RANDOM.permutation(24)[:20]


def snake(offsets, partitions=16, group=16):
    """The index that holds these offsets: `index[i % group, i // group]` of each group."""
    columns = -(-len(offsets) // group)
    index = np.zeros((partitions, columns), np.uint16)
    for i, offset in enumerate(offsets):
        for first in range(0, partitions, group):
            index[first + i % group, i // group] = offset
    return index


INDEX = snake(OFFSETS)


def run(compute, *arrays, machine=TRN3):
    return on_nki_tiles(compute, *arrays, machine=machine)


def gathered(x, index, num_elem=20, shape=(16, 20)):
    made = nl.ndarray(shape, x.dtype)
    nisa.tensor_copy(made, x.indirect(index, num_elem))
    return made


def test_groups_of_the_same_offsets_and_of_others():
    data = RANDOM.integers(-50, 50, (32, 24)).astype(np.float32)
    index = snake(OFFSETS, 32)
    result = run(lambda x, i: gathered(x, i, 20, (32, 20)), data, index)
    np.testing.assert_array_equal(result, data[:, OFFSETS])
    index[16] += 1
    with pytest.raises(NotModelledError, match="other offsets in each group"):
        run(lambda x, i: gathered(x, i, 20, (32, 20)), data, np.minimum(index, 23))


def test_the_roles_that_the_page_of_tensor_indirection_names():
    taken = {
        name: " ".join(role.name for role in record.operands if role.by_offsets)
        for name, record in every_record().items()
    }
    assert {name: roles for name, roles in taken.items() if roles} == {
        "activate2": "data",
        "activation": "data",
        "exponential": "src",
        "nc_matmul": "stationary moving",
        "nc_matmul_mx": "stationary moving stationary_scale moving_scale",
        "tensor_copy": "src",
        "tensor_copy_predicated": "predicate",
        "tensor_reduce": "data",
        "tensor_scalar": "data",
        "tensor_scalar_cumulative": "src",
        "tensor_scalar_reduce": "data",
        "tensor_tensor": "data1",
    }


def beside(x, column):
    return nl.copy(x[:, 4:8].select(1, nl.full((1, 1), column, nl.int32)))


@every(
    "use, kind, text",
    [
        (
            lambda x, i: x.indirect(i.view(nl.int16)[:, 0:1], 17),
            ShapeError,
            "limit:    16",
        ),
        (
            lambda x, i: x.indirect(nl.copy(i, dtype=nl.float32)),
            DtypeError,
            "holds integers",
        ),
        (lambda x, i: x.indirect(i[0:8]), ShapeError, "the tensor's partitions"),
        (lambda x, i: x.indirect(5), BufferError, "an index in SBUF"),
        (lambda x, i: x[:, 0:10].indirect(i, 20), OutOfBoundsError, "offset"),
        (lambda x, i: beside(x, -1), OutOfBoundsError, "offset -1"),
        (lambda x, i: beside(x, 4), OutOfBoundsError, "offset 4"),
        (lambda x, i: x.indirect(i, 0), ShapeError, "at least one"),
        (
            lambda x, i: x.indirect(i, 20)[:, 0:4],
            KernelError,
            "view is for instructions, has one",
        ),
        (
            lambda x, i: nisa.memset(x.indirect(i, 20), 0),
            KernelError,
            "memset takes no indirect",
        ),
        (
            lambda x, i: nisa.tensor_tensor(
                x[:, 0:20], x[:, 0:20], x.indirect(i, 20), nl.add
            ),
            KernelError,
            "tensor_tensor takes no indirect view as data2",
        ),
        (
            lambda x, i: nisa.tensor_copy(x[:, 0:20], x.indirect(i, 20), engine=GPSIMD),
            KernelError,
            "indirect views on the Vector and Scalar Engines",
        ),
        (
            lambda x, i: nisa.activation(
                nl.zeros((16, 24), nl.float32, nl.psum).indirect(i, 20),
                nl.exp,
                x[:, 0:20],
            ),
            KernelError,
            "a scattered dst in SBUF on the Scalar Engine",
        ),
        (
            lambda x, i: nisa.nc_matmul(
                nl.zeros((20, 24), nl.float32, nl.psum), x.indirect(i, 20), x
            ),
            DtypeError,
            "indirect operands of two bytes or one",
        ),
    ],
)
def test_misuse_is_one_clear_error(use, kind, text):
    assert text in raised(kind, lambda x, i: use(x, i) and x, DATA, INDEX, machine=TRN3)


def test_index_and_tensor_begin_on_one_quadrant():
    tall = np.zeros((48, 24), np.float32)
    index = np.zeros((48, 1), np.uint16)
    for first, fits in ((0, True), (16, False), (32, True)):

        def compute(x, i, first=first):
            rows = slice(first, first + 16)
            return gathered(x[rows], i[rows], 16, (16, 16))

        if fits:
            run(compute, tall, index)
        else:
            assert "a multiple of 32" in raised(
                KernelError, compute, tall, index, machine=TRN3
            )


def test_older_machines_have_no_indirection():
    assert "NeuronCore-v4" in raised(KernelError, gathered, DATA, INDEX, machine=TRN2)

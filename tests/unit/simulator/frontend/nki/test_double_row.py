"""``nc_matmul`` with ``perf_mode=double_row``, and on tiles of the PE array."""

import ml_dtypes
import numpy as np

from difftest.simulator import TRN1, TRN2, KernelError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.timing.tensor_engine import matmul
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import raised, stored

DOUBLE_ROW = nisa.matmul_perf_mode.double_row
RANDOM = np.random.default_rng(0)
LEFT = RANDOM.integers(-4, 5, (128, 2, 16)).astype(ml_dtypes.float8_e4m3)
RIGHT = RANDOM.integers(-4, 5, (128, 2, 5, 8)).astype(ml_dtypes.float8_e5m2)


def multiplied(x, y, **options):
    """A product of 256 rows in PSUM."""
    result = nl.ndarray((16, 40), nl.float32, buffer=nl.psum)
    for _ in range(2):
        nisa.nc_matmul(result, x, y, perf_mode=DOUBLE_ROW, **options)
    return result


def test_its_cost_equals_half_the_rows():
    """256 rows of the contraction in the time of 128."""

    def kernel(x, y):
        return stored(multiplied(nl.load(x), nl.load(y)))

    event = next(
        e for e in launch(kernel, [LEFT, RIGHT]).trace.events if e.opcode == "nc_matmul"
    )
    work = matmul(event, TRN2)
    assert (work.passes, work.rows, work.flops) == (1, 40, 2 * 256 * 16 * 40)


@every(
    "position, size, machine",
    [((32, 0), (64, 128), TRN2), ((0, 0), (96, 128), TRN2), ((0, 0), (32, 128), TRN1)],
)
def test_a_tile_of_the_pe_array_starts_at_a_multiple_of_its_size(
    position, size, machine
):
    def compute(x):
        result = nl.ndarray((16, 16), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(result, x, x, tile_position=position, tile_size=size)
        return result

    x = np.ones((32, 16), np.float32)
    assert "multiple of its size" in raised(KernelError, compute, x, machine=machine)

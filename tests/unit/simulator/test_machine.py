import dataclasses

import pytest

from difftest.simulator import MACHINES, TRN1, TRN2, TRN3


def test_the_machines_by_name():
    assert MACHINES == {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}


def test_numbers_that_the_generations_share():
    """AWS programming_model.rst and trainium_inferentia2_arch.rst at tag v2.26.0."""
    for machine in MACHINES.values():
        assert machine.partitions == 128
        assert (machine.gemm_stationary_fmax, machine.gemm_moving_fmax) == (128, 512)
        assert (machine.psum_fmax, machine.psum_banks) == (512, 8)
        assert machine.psum_partition_bytes * 128 == 2 * 2**20
        assert machine.max8_range == (8, 16384)
        assert (machine.bn_stats_fmax, machine.vector_transpose_max) == (512, 32)


def test_the_generations_differ_in_their_documented_sizes():
    assert (TRN1.nc_version, TRN2.nc_version, TRN3.nc_version) == (2, 3, 4)
    assert TRN1.sbuf_partition_bytes * 128 == 24 * 2**20
    assert TRN2.sbuf_partition_bytes * 128 == 28 * 2**20
    # trainium3_arch.rst at v2.32.0
    assert TRN3.sbuf_partition_bytes * 128 == 32 * 2**20
    assert TRN1.sbuf_usable_bytes == 176 * 1024


def test_a_machine_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TRN2.partitions = 256

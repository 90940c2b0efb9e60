from difftest.testing.backends.device.core import FAULTS, Blame, find_fault
from tests.every import every

BLAMED = {
    Blame.INFRASTRUCTURE: (
        "NRT_TIMEOUT",
        "NRT_EXEC_NC_BUSY",
        "NRT_EXEC_UNIT_UNRECOVERABLE",
    ),
    Blame.KERNEL: (
        "NRT_EXEC_OOB",
        "NRT_EXEC_BAD_INPUT",
        "NRT_EXEC_COMPLETED_WITH_NUM_ERR",
    ),
}


@every(
    "text, code",
    [
        ("NRT Error NRT_EXEC_OOB(1006): Failed to execute model", "NRT_EXEC_OOB(1006)"),
        ("nrt_execute failed with NRT_TIMEOUT", "NRT_TIMEOUT(5)"),
        ("NRT:nrt_execute returned 1005", "NRT_EXEC_NC_BUSY(1005)"),
        ("ERROR NRT status: 101", "NRT_EXEC_UNIT_UNRECOVERABLE(101)"),
        ("neuronx-cc: [ERROR] [NCC_EVRF007] too many", "NCC_EVRF007"),
    ],
)
def test_codes_are_found_by_name_and_by_number(text, code):
    assert find_fault(text).code == code


@every(
    "text",
    ["", "a value of 1006 in row 5", "NRT_SOMETHING_NEW", "AssertionError: 128 rows"],
)
def test_text_that_resembles_a_code_is_not_a_code(text):
    assert find_fault(text) is None


def test_the_name_decides_where_a_number_belongs_to_another():
    """A public page shows NRT_FAILURE(6), though 6 is NRT_HW_ERROR."""
    assert find_fault("NrtError: NRT_FAILURE(6)").blame is Blame.KERNEL


@every("blame, names", BLAMED.items())
def test_faults_of_the_infrastructure_and_of_the_kernel(blame, names):
    assert {find_fault(f"{name}({FAULTS[name].number})").blame for name in names} == {
        blame
    }


def test_every_hardware_error_is_the_infrastructures():
    """From 1200 on, the documented codes are of hardware, collectives and the network."""
    high = [fault for fault in FAULTS.values() if (fault.number or 0) >= 1200]
    assert len(high) == 7
    assert {fault.blame for fault in high} == {Blame.INFRASTRUCTURE}


def test_an_undocumented_compiler_code_points_at_the_page():
    assert "Neuron Compiler Error Codes" in find_fault("NCC_EXYZ999").hint


def test_each_code_has_a_hint():
    assert all(fault.hint for fault in FAULTS.values())

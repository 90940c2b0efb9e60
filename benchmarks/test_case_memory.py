"""The peak memory of a case, for each byte of its inputs and outputs, in a process of its own.

The inputs, their copies, the output, and the reference's float64 result exist at one time. The
exact run's values and bounds in float64 are in temporary files.
"""

import subprocess
import sys

BYTES = 3.0
"""The most bytes for each byte of inputs and outputs."""


def test_case_memory(capsys):
    each = float(
        subprocess.check_output(
            [sys.executable, "-m", "benchmarks.test_case_memory"], text=True
        )
    )
    with capsys.disabled():
        print(f"\n{each:.2f} bytes for each byte of inputs and outputs (aim 3)")
    assert each <= BYTES


def print_peak_memory():
    """Print what a case adds to the peak memory, for each byte of its input and its output."""
    import resource

    import difftest
    from difftest.simulator.entry.install import embedded

    with embedded():
        from benchmarks import case_memory

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        difftest.check(
            case_memory.test_scaled,
            {"R": case_memory.ROWS, "N": case_memory.COLUMNS},
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    size = 2 * 4 * case_memory.ROWS * case_memory.COLUMNS
    print((peak - before) * unit / size)


if __name__ == "__main__":
    print_peak_memory()

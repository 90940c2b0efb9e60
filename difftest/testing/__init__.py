"""Test a kernel: draw cases, run them on backends, compare, and report."""

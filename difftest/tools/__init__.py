"""Tools that stand on the simulator and on the tests of kernels."""

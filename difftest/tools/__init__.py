"""Tools that use the simulator and the tests of kernels."""

"""Kernels as objects, and the modules ``neuronxcc`` and ``nki`` that kernels import."""

"""Kernels of the classic dialect, `neuronxcc.nki` (SDK 2.21 to 2.27)."""

"""Kernels of the current dialect, `nki` (SDK 2.29 and later)."""

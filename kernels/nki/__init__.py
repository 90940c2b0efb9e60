"""Kernels of today's dialect, `nki` (SDK 2.29 and later)."""

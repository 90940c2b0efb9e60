"""Processes, files, versions and other services that know nothing of kernels."""

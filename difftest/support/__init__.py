"""Processes, files, versions and other services that do not depend on kernels."""

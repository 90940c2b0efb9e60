"""The modules that kernels import: a folder for each dialect, and their common parts here."""

"""Rewrite classic kernels (``neuronxcc.nki``) in the current dialect and validate the results."""

"""The way over: classic kernels (``neuronxcc.nki``) rewritten in today's dialect, and proven."""

"""What scripts of AWS's documentation at v2.26.0 import of torch_xla.core."""

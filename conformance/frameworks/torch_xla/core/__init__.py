"""The part of torch_xla.core that scripts of AWS's documentation at v2.26.0 import."""

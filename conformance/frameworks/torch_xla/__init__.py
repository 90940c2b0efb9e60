"""A stand-in of torch_xla for scripts of AWS's documentation: its device is the host's memory."""

from __future__ import annotations


def device() -> str:
    """Return the device of the scripts' tensors: torch accepts the name of a device."""
    return "cpu"


def sync() -> None:
    """Nothing is pending: kernels have run when they return."""

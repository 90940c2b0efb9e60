"""The exact run: a kernel's results without rounding, and bounds on the effect of rounding."""

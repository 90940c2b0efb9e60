"""The exact run: what a kernel computes without rounding, and how far rounding may lead it away."""

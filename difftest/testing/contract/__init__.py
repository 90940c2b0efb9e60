"""The contract of a kernel: its spec, its cases, recipes of data, the reference, and limits."""

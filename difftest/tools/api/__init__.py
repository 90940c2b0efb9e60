"""The documented names of NKI, and the embedded simulator's support for each."""

"""The documented names of NKI, and what the embedded simulator has of each."""

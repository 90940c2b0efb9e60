"""The references: each operation in plain NumPy, computed in float64, readable as mathematics."""

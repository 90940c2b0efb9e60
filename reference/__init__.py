"""What is right: each operation in plain NumPy, computed in float64, readable as mathematics."""

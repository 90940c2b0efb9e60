"""The course assignment: its tests and points as data, and the grading of a solution."""

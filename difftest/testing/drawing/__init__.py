"""Drawn cases: strategies, the plan of a test's cases, and the minimal failing case."""

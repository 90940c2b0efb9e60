"""Other people's test suites and examples, run on the embedded simulator (README.md)."""

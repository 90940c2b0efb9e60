"""The judging of drawn cases: runner, comparison, verdicts and failures."""

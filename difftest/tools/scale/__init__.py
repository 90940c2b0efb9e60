"""Long searches: fuzzing campaigns, sweeps over many points, and tuning."""

"""More than one machine's minute: campaigns of fuzzing, sweeps over many points, tuning."""

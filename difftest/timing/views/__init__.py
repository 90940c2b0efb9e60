"""Ways to look at a prediction: text, a trace for Perfetto, pictures."""

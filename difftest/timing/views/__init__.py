"""Views of a prediction: text, a trace for Perfetto, pictures."""

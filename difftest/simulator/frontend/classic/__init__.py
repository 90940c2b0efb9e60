"""The classic dialect, ``neuronxcc.nki``: its syntax and its calls."""

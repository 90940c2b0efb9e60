"""The oracle: the literal meaning of each instruction, for comparison with the simulator.

It follows a launch (``launch(..., plain=True)``) with a memory of its own. There the elements of a
view are an array of their places, found by NumPy's own indexing. The oracle shares no arithmetic
and no algebra of patterns with the simulator, and reports the instruction where their results
differ.
"""

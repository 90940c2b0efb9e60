"""The oracle: what each instruction literally means, beside what the simulator makes of it.

It follows a launch (``launch(..., plain=True)``) with a memory of its own, where the elements of a
view are an array of their places, found by NumPy's own indexing. It shares no arithmetic and no
algebra of patterns with the simulator, and says at which instruction the two part.
"""

"""The plain mode: a second, literal simulator, which judges the fast one.

Each instruction as AWS's documentation states it (``nki.isa``, ``nki.language`` and
``nki.api.shared.rst`` at tag v2.26.0), on arrays that hold each dtype's own bits. A tile is an
array of flat positions in its tensor, so that views, broadcasts and masks are NumPy indexing and
nothing else: there are no strides, no shortcuts for whole tensors, no skipped copies. It shares
with the fast mode the signatures of functions, the list of dtypes, the machine and the errors.
This is the classic dialect; today's stands on it, in ``nki/``.
"""

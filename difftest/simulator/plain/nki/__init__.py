"""The plain mode of today's dialect: its tensors and calls, on the plain mode's own arithmetic.

Sources: the stubs of ``nki.language`` and ``nki.isa`` at tag v2.32.0, and "NKI Access Patterns".
A view is an array of the positions that it names, as in the classic part; what an instruction
computes is that part's, in the dtype of ``dst``, whose elements then go to ``dst`` one by one.
"""

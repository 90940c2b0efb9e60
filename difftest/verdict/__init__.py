"""One kernel, one spec, one object that says what came of it: ``difftest verdict``.

The kernel's author may want to be believed more than to be right. So the kernel's Python runs in a
process of its own (:mod:`~difftest.verdict.worker`), and what comes back are bytes that are checked
(:mod:`~difftest.verdict.wire`). The judge's process holds the test, the reference and the data.
There :class:`~difftest.verdict.backend.CandidateBackend` runs a kernel that it knows a signature
of, and no code.
"""

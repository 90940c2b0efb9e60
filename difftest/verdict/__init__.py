"""One kernel, one spec, one object that says what came of it: ``difftest verdict``.

The kernel's author may want to be believed more than to be right. So the kernel's Python runs in a
process of its own (:mod:`~difftest.verdict.worker`, confined by
:mod:`~difftest.verdict.confinement`), and what comes back are bytes (:mod:`~difftest.verdict.wire`)
that are checked. The judge's process holds the test, the reference and the drawn data. There the
kernel is a :class:`~difftest.verdict.candidate.Candidate`, which knows a signature and no code, and
its runs come from :class:`~difftest.verdict.backend.CandidateBackend`, a backend of the ordinary
harness.

Who builds on it: :func:`difftest.verdict.judge.judge` takes a spec and a worker that has loaded a
kernel, and gives a :class:`~difftest.verdict.judgement.Judgement`;
:func:`difftest.verdict.command.judged` is the whole way from two names to that object, and
:mod:`~difftest.verdict.batch` that of many kernels, in processes of :mod:`~difftest.verdict.bench`.
"""

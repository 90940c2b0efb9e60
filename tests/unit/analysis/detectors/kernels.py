"""Helpers that run a kernel and return the detectors' findings."""

import numpy as np

from difftest.analysis.detectors import detect
from difftest.analysis.detectors.uninitialised import UNWRITTEN
from difftest.analysis.inspection import Inspector
from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.launch_listeners import listening

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def output(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


def found_in(kernel, arrays, **options):
    """(id, severity) of each finding, the worst first; doubts are settled by runs."""
    return [
        (one.id, one.severity.value) for one in findings_in(kernel, arrays, **options)
    ]


def findings_in(kernel, arrays, **options):
    """Return the findings of one launch, without those on unwritten outputs.

    Many kernels of these tests write only the elements that they are about.
    """
    return [
        one
        for one in all_findings_in(kernel, arrays, **options)
        if one.id != UNWRITTEN.id
    ]


def all_findings_in(kernel, arrays, **options):
    """The findings of one launch."""
    inspector = Inspector()
    with listening(inspector):
        launch(kernel, arrays, **options)
    return inspector.findings


def detected_in(kernel, arrays, **options):
    """Return the findings from the trace alone."""
    kept = []
    with listening(kept.append):
        launch(kernel, arrays, **options)
    (launched,) = kept
    return detect(launched.trace, launched.machine)

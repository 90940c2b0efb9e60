"""Authors' annotations that name nothing: Python 3.14 evaluates none before somebody reads it."""

import sys

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.support.annotations import own_annotations, signature_shown
from difftest.support.signature import signature_of
from tests.every import every

IS_LATE = sys.version_info >= (3, 14)
"""This Python accepts annotations that name missing classes."""
KERNEL = """
def copied(source: OfATypeChecker, times=1) -> AnotherOne:
    result = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=source)
    return result
"""
RECORD = """
class Settings(nl.NKIObject):
    rows: OfATypeChecker
    columns: int = 3
"""


def defined(source):
    """The names of an author's module."""
    names = {"nl": nl, "nisa": nisa}
    exec(compile(source, "authors.py", "exec", dont_inherit=True), names)
    return names


@every("source", [KERNEL, RECORD])
def test_before_314_python_itself_refuses_a_name_that_is_nothing(source):
    if IS_LATE:
        assert defined(source)
        return
    with pytest.raises(NameError, match="OfATypeChecker"):
        defined(source)


@every("future", [True, False])
def test_a_kernel_shows_its_signature_and_runs(future):
    """As text an annotation may name nothing in each Python."""
    source = "from __future__ import annotations\n" * future + KERNEL
    if not (future or IS_LATE):
        source = KERNEL.replace("OfATypeChecker", "int").replace("AnotherOne", "int")
    kernel = defined(source)["copied"]
    assert list(signature_shown(kernel).parameters) == ["source", "times"]
    assert list(signature_of(kernel).parameters) == ["source", "times"]
    data = np.ones((2, 3), np.float32)
    assert np.array_equal(launch(kernel, [data]).outputs[0], data)


@every("future", [True, False])
def test_a_record_has_its_own_fields_and_no_others(future):
    source = "from __future__ import annotations\n" * future + RECORD
    source += "\nclass More(Settings):\n    depth: int = 4\n"
    source = source if future or IS_LATE else source.replace("OfATypeChecker", "int")
    names = defined(source)
    assert list(own_annotations(names["Settings"])) == ["rows", "columns"]
    assert list(own_annotations(names["More"])) == ["depth"]
    made = names["More"](7, depth=9)
    assert (made.rows, made.columns, made.depth) == (7, 3, 9)


def test_a_class_without_annotations_has_none():
    assert own_annotations(type("Plain", (), {})) == {}

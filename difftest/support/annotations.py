"""Annotations in the code of kernel authors.

From Python 3.14 on Python evaluates annotations when they are first read (PEP 649). An annotation
may name something that does not exist then, such as a class that is imported for a type checker
alone. The author's function and class work all the same, so reading their annotations must not
raise.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any


def own_annotations(cls: type) -> Mapping[str, Any]:
    """Return the annotations in the body of a class, without annotations of its bases."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(
            cls, format=annotationlib.Format.FORWARDREF
        )
    own: Mapping[str, Any] = vars(cls).get("__annotations__", {})
    return own


def signature_shown(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function as :func:`inspect.signature` does.

    Raises
    ------
    TypeError : the object is not callable.
    ValueError : the signature cannot be read, as for some functions written in C.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(
            function, annotation_format=annotationlib.Format.FORWARDREF
        )
    return inspect.signature(function)

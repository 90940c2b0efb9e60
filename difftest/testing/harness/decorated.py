"""The spec and the checks that a decorated test carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from difftest.testing.contract.spec import KernelSpec

TestFunction = Callable[..., Any]
RUNNER_FIXTURE = "difftest_runner"
ATTRIBUTE = "difftest"
"""The attribute of a decorated test that holds its :class:`KernelTest`."""


class KernelTest(NamedTuple):
    """The spec and the checks of a decorated test, for the plugin.

    Each check takes the runner. ``check_case`` also takes ``case`` and the fixtures of the test
    function, ``check_rejection`` takes ``rejection``, and ``check_edges`` takes ``calls``.
    """

    spec: KernelSpec
    check_case: TestFunction
    check_rejection: TestFunction
    check_edges: TestFunction


def kernel_test_of(function: object) -> KernelTest | None:
    """Return the :class:`KernelTest` of a function that ``@kernel_test`` decorated, or None."""
    test = getattr(function, ATTRIBUTE, None)
    return test if isinstance(test, KernelTest) else None

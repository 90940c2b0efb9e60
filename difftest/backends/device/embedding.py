"""The embedded simulator beside the SDK: in a process of its own, where it stands for the SDK.

Both want to be ``neuronxcc``, so that one process has either. A forked process lets go of the SDK
and of every module that holds a part of it, and imports kernels again with the embedded modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from difftest.backends.detection import CLASSIC, PACKAGES
from difftest.backends.device.worker import Worker

SECONDS = 1800.0
"""Simulating the course's largest image takes minutes on a small computer."""


def call_embedded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function where ``neuronxcc`` is the embedded simulator; its result, pickled.

    Whatever the function raises goes through.

    Raises
    ------
    WorkerHungError, WorkerDiedError : it did not come to its end.
    """

    def within() -> Any:  # forked with its arguments: they need no pickling, closures among them
        from difftest.simulator.frontend.install import embedded

        forget_sdk()
        with embedded():
            return function(*arguments)

    worker = Worker(within, {})
    try:
        answer = worker.run(timeout=SECONDS)
    finally:
        worker.close()
    if answer.error is not None:
        raise answer.error
    return answer.value


def forget_sdk() -> None:
    """Take every module that holds a part of the classic SDK out of ``sys.modules``."""
    for name, module in list(sys.modules.items()):
        if any(_of_sdk(value) for value in list(getattr(module, "__dict__", {}).values())):
            del sys.modules[name]


def _of_sdk(value: object) -> bool:
    attribute = "__name__" if isinstance(value, ModuleType) else "__module__"
    home = getattr(value, attribute, None)
    return isinstance(home, str) and f"{home}.".startswith(f"{PACKAGES[CLASSIC]}.")

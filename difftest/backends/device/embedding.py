"""The embedded simulator beside the SDK: in a process of its own, where it stands for the SDK.

Both want to be ``neuronxcc``, so that one process has either. A forked process lets go of the SDK
and of every module that holds a part of it, and imports kernels again with the embedded modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from difftest.backends.base import KernelCall, Ran
from difftest.backends.detection import CLASSIC, PACKAGES
from difftest.backends.dialect import dialect_of, function_of
from difftest.host.worker import Worker

SECONDS = 1800.0
"""Simulating the course's largest image takes minutes on a small computer."""


def ran_beside(call: KernelCall) -> Ran | str:
    """The run of a kernel that was imported with the SDK on the embedded simulator, or why not."""
    if dialect_of(call.kernel) != CLASSIC:
        return "the embedded simulator runs kernels of neuronxcc.nki alone"
    function = function_of(call.kernel)
    if function is None or "." in function.__qualname__:
        return "the kernel is not a function of a module"
    try:
        ran: Ran | str = call_embedded(_ran_anew, function.__module__, function.__name__, call)
    except Exception as error:  # whatever keeps it from running is why it says nothing
        return f"{type(error).__name__}: {error}"
    return ran


def _ran_anew(module: str, kernel: str, call: KernelCall) -> Ran | str:
    from difftest.backends.embedded import ran_embedded

    return ran_embedded(replace(call, kernel=getattr(importlib.import_module(module), kernel)))


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

"""The embedded simulator in NumPy, with and without its oracle."""

from __future__ import annotations

import collections
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from difftest.analysis.finding import Finding
from difftest.analysis.inspection import Inspector
from difftest.simulator import (
    MissingNameError,
    NkiError,
    NotModelledError,
    SignatureError,
)
from difftest.simulator.dtypes import Array
from difftest.simulator.entry.install import embedded
from difftest.simulator.errors import is_inside
from difftest.simulator.frontend import dispatch
from difftest.simulator.launch import Launch, LaunchResult, ran
from difftest.simulator.launch_listeners import listening
from difftest.simulator.machine import MACHINES
from difftest.simulator.strictness import strictness_scope
from difftest.simulator.trace import Trace
from difftest.support.internal_errors import internal_error_scope
from difftest.support.tracebacks import inner_frames, is_own
from difftest.testing.backends.base import (
    Completed,
    Crashed,
    KernelCall,
    Outcome,
    Rejected,
    Unsupported,
    is_among,
)
from difftest.testing.backends.sdk import PACKAGES, dialect_of, function_of, is_of

SECONDS = 1800.0
"""The most seconds of a run in a process of its own. Large images take minutes."""
Reader = Callable[[Callable[..., Any], str | None, Trace], tuple[Finding, ...]]
"""A function that returns the findings in a kernel and its trace, at a level of NKI."""


class EmbeddedSimulator:
    """A backend for kernels that were imported while the embedded modules were installed."""

    name = "embedded"
    description = (
        "the embedded simulator, in NumPy (trn2, unless a kernel names its platform)"
    )
    plain = False

    def __init__(self, level: str | None = None, strictness: str | None = None) -> None:
        self.level = level
        """The level of NKI for kernels of the current dialect; None for all levels."""
        self.strictness = strictness
        """The rules whose violation is a warning; None for the default."""
        self.reader: Reader | None = None
        """A further check of each run: the plugin sets the linter."""

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel; its own assertions and the machine's rules are rejections.

        A feature that the simulator does not model is unsupported. Any other error is a bug: of the
        simulator if its code raised it, else of the kernel's Python.
        """
        inspector = Inspector() if call.inspect else None
        try:
            with listening(inspector), strictness_scope(self.strictness):
                result = self._launched(call)
        except NotModelledError as error:
            return Unsupported(error)
        except (SignatureError, MissingNameError) as error:
            return Crashed(error)  # a bug of the kernel, not a rule
        except NkiError as error:
            forget_caller(error, __file__)
            return Rejected(error)
        except Exception as error:  # becomes a failure, not hidden
            in_backend = is_defect(error, call.kernel)
            if isinstance(error, AssertionError) and not in_backend:
                return Rejected(error)
            return Crashed(error, in_backend)
        findings: tuple[Finding, ...] = ()
        if inspector is not None:
            findings = tuple(inspector.findings)
            if self.reader is not None:
                with internal_error_scope("the linter"):
                    findings += self.reader(call.kernel, self.level, result.trace)
        return _completed(call, result, findings)

    def _launched(self, call: KernelCall) -> LaunchResult:
        """Run the kernel, on each rank if it has ranks."""
        machine = None if call.machine is None else MACHINES[call.machine]
        runs = []
        for rank in range(call.ranks or 1):
            args, named = call.arguments(rank)
            launch = Launch(
                call.kernel,
                args,
                named,
                grid=call.grid,
                machine=machine,
                record=call.record,
                plain=self.plain,
                level=self.level,
                exact=call.exact or False,
            )
            runs.append(launch)
        if call.ranks:
            return merge_ranks(ran(runs, ranks=True))
        return ran(runs)[0]


def _completed(
    call: KernelCall, result: LaunchResult, findings: tuple[Finding, ...]
) -> Completed:
    """Return the outcome of a launch: its own outputs, then the targets of the call."""
    written = call.written
    kept = [
        number
        for number, array in enumerate(result.origins)
        if not is_among(array, written)
    ]
    unwritten = [result.unwritten[number] for number in kept]
    untouched = [
        name
        for name, array in zip(call.target_names, written, strict=False)
        if not is_among(array, result.written)
    ]
    return Completed(
        outputs=(*(result.outputs[number] for number in kept), *written),
        unwritten=(*unwritten, *call.missing_writes(written)),
        trace=result.trace if call.record else None,
        exact=None if result.exact is None else result.exact.of(kept, written),
        findings=findings,
        written=result.written,
        returned=result.returned,
        unset=unset_arguments(call, result.trace),
        untouched=tuple(untouched),
    )


def unset_arguments(call: KernelCall, trace: Trace) -> tuple[str, ...]:
    """Return the names of poisoned arguments that the first instruction on them reads."""
    poisoned = set(call.names[len(call.inputs) :])
    is_read: dict[str, bool] = {}
    for event in trace.events:
        if len(is_read) == len(poisoned):
            break
        for regions, reads in ((event.reads, True), (event.writes, False)):
            for region in regions:
                base = region.allocation
                if base.name in poisoned and base.location is None:
                    is_read.setdefault(base.name, reads)
    return tuple(name for name, reads in is_read.items() if reads)


def merge_ranks(ranks: Sequence[LaunchResult]) -> LaunchResult:
    """Merge the results of all ranks: outputs along a first axis, and the first rank's trace."""
    outputs = [
        np.stack(arrays)
        for arrays in zip(*(rank.outputs for rank in ranks), strict=True)
    ]
    masks = []
    for array, *several in zip(
        outputs, *(rank.unwritten for rank in ranks), strict=True
    ):
        nothing = np.zeros(array.shape[1:], bool)
        masks.append(np.stack([nothing if mask is None else mask for mask in several]))
    written: list[Array] = []
    returned: list[Array] = []
    for rank in ranks:
        written += map(_whole, rank.written)
        returned += map(_whole, rank.returned)
    return LaunchResult(
        tuple(outputs),
        tuple(masks),
        ranks[0].trace,
        written=tuple(written),
        returned=tuple(returned),
        origins=tuple(
            None if array is None else _whole(array) for array in ranks[0].origins
        ),
    )


def _whole(array: Array) -> Array:
    """Return the array of all ranks that contains a rank's array."""
    return array if array.base is None else array.base


def run_embedded(call: KernelCall) -> Completed | str:
    """Run a kernel on the embedded simulator; return the reason if it does not complete."""
    outcome = EmbeddedSimulator().run(call)
    if isinstance(outcome, Completed):
        return outcome
    return f"it rejects the case: {type(outcome.error).__name__}: {outcome.error}"


def forget_caller(error: NkiError, file: str) -> None:
    """Remove the location from an error if it is in ``file``, which is not the kernel's."""
    if error.location is not None and error.location.file == file:
        error.location = None


_REPEATED = 50
"""A function with more calls on the stack calls itself without an end."""


def is_defect(error: Exception, kernel: Callable[..., Any]) -> bool:
    """Return whether an error is the simulator's: its code raised it, not the kernel's."""
    if isinstance(error, RecursionError):
        return not _calls_itself(error, kernel)
    for entry in inner_frames(error):
        if entry.tb_frame.f_code.co_filename == dispatch.__file__:
            continue  # it only forwards a call; wrong arguments are the kernel's error
        if is_inside(entry.tb_frame.f_code):
            return True
        if is_own(entry, kernel):
            return False
    return False


def _calls_itself(error: RecursionError, kernel: Callable[..., Any]) -> bool:
    """Return whether calls of a function of the kernel fill the stack."""
    entries = inner_frames(error)
    own = collections.Counter(
        entry.tb_frame.f_code for entry in entries if is_own(entry, kernel)
    )
    return max(own.values(), default=0) > _REPEATED


class PlainSimulator(EmbeddedSimulator):
    """The embedded simulator with an oracle that judges each instruction, slow and literal."""

    name = "plain"
    description = (
        "the embedded simulator in plain mode, with an oracle (trn2, unless named)"
    )
    plain = True


def run_beside_sdk(call: KernelCall) -> Completed | str:
    """Run a kernel that was imported with the SDK on the embedded simulator.

    It returns the reason if the run does not complete. The SDK's modules and the embedded ones have
    the same names, so one process can hold only one of them. A forked process removes the SDK and
    every module with a part of it, and imports the kernel again.
    """
    if dialect_of(call.kernel) is None:
        return "the dialect of the kernel is unclear"
    place = module_of(call.kernel)
    if place is None:
        return "the kernel is not a function of a module"
    module, name = place

    # A fork needs no pickling of the call and its closures.
    def within() -> Completed | str:
        forget_sdk()
        with embedded():
            kernel = getattr(importlib.import_module(module), name)
            return run_embedded(call._replace(kernel=kernel))

    from difftest.support.worker import Worker

    worker = Worker(within, {})
    try:
        answer = worker.run(timeout=SECONDS)
    finally:
        worker.close()
    if answer.error is not None:  # any error is the reason for no result
        return f"{type(answer.error).__name__}: {answer.error}"
    ran: Completed | str = answer.value
    return ran


def module_of(kernel: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the module that defines a kernel, and the kernel's name there; None if none does.

    A kernel of an SDK may show no function. Then the modules are searched for it, the last one
    imported first: a test is imported before the kernels that it imports.
    """
    function = function_of(kernel)
    if function is not None:
        is_local = "." in function.__qualname__
        return None if is_local else (function.__module__, function.__name__)
    for module, found in reversed(list(sys.modules.items())):
        names = [name for name, value in vars(found).items() if value is kernel]
        if names:
            return module, names[0]
    return None


def forget_sdk() -> None:
    """Remove every module with a part of an SDK from ``sys.modules``."""
    for name, module in list(sys.modules.items()):
        values = list(getattr(module, "__dict__", {}).values())
        for package in PACKAGES.values():
            if any(is_of(value, package) for value in values):
                sys.modules.pop(name, None)

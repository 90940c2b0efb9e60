"""The embedded simulator, with and without its oracle: kernels run on NumPy, anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.analysis.finding import Finding
from difftest.backends.base import (
    Crashed,
    KernelCall,
    Outcome,
    Ran,
    Rejected,
    Unsupported,
    still_poisoned,
)
from difftest.breakdown import unless_broken
from difftest.harness.frames import entries, is_own
from difftest.inspection import Inspector
from difftest.simulator import (
    MissingNameError,
    NkiError,
    NotModelledError,
    SignatureError,
    launch,
)
from difftest.simulator.errors import is_inside
from difftest.simulator.frontend import dispatch
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Trace
from difftest.simulator.witness import witnessing

Reader = Callable[[Callable[..., Any], str | None, Trace], tuple[Finding, ...]]
"""What is found in a kernel and its trace, at a level of NKI."""


class EmbeddedSimulator:
    """Runs kernels that were imported while the embedded modules stood for ``neuronxcc``."""

    name = "embedded"
    description = "the embedded simulator, in NumPy (trn2, unless a kernel names its platform)"
    plain = False

    def __init__(self, level: str | None = None, strictness: str | None = None) -> None:
        self.level = level
        """Of NKI, for kernels of today's dialect; None for all of them."""
        self.strictness = strictness
        """Which broken rules are warnings; None for what is chosen elsewhere."""
        self.reader: Reader | None = None
        """Who else looks at a run: the plugin lets the linter."""

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel; its own assertions and the machine's rules are rejections.

        What the simulator does not model is neither right nor wrong. Any other error is a bug: of
        the simulator, if it comes out of its code, else of the kernel's Python.
        """
        args, kwargs = call.arguments()
        inspector = Inspector() if call.inspect else None
        try:
            with witnessing(inspector):
                result = launch(
                    call.kernel,
                    args,
                    kwargs,
                    grid=call.grid,
                    machine=MACHINES[call.machine] if call.machine is not None else None,
                    record=call.record,
                    plain=self.plain,
                    exact=call.exact or False,
                    level=self.level,
                    strictness=self.strictness,
                )
        except NotModelledError as error:
            return Unsupported(error)
        except (SignatureError, MissingNameError) as error:  # a slip of the kernel's, and no rule
            return Crashed(error)
        except NkiError as error:
            forget_caller(error, __file__)
            return Rejected(error)
        except Exception as error:  # becomes a failure, not hidden
            in_backend = is_defect(error, call.kernel)
            if isinstance(error, AssertionError) and not in_backend:
                return Rejected(error)
            return Crashed(error, in_backend)
        trace = result.trace if call.record else None
        exact = result.exact
        findings = tuple(inspector.findings) if inspector else ()
        if inspector and self.reader:
            with unless_broken("the linter"):
                findings += self.reader(call.kernel, self.level, result.trace)
        outputs, unwritten = result.outputs, result.unwritten
        if call.outputs:
            if exact is not None:
                exact = exact.of(call.outputs)
            outputs, unwritten = call.outputs, tuple(map(still_poisoned, call.outputs))
        of_inputs = result.written, result.returned
        return Ran(outputs, unwritten, trace, exact, findings, *of_inputs)


def ran_embedded(call: KernelCall, level: str | None = None) -> Ran | str:
    """The run of a kernel on the embedded simulator, or why there is none."""
    outcome = EmbeddedSimulator(level).run(call)
    if isinstance(outcome, Ran):
        return outcome
    return f"it refuses the case: {type(outcome.error).__name__}: {outcome.error}"


def forget_caller(error: NkiError, file: str) -> None:
    """Take the line of the ``file`` that launched out of an error: no kernel's line is known."""
    if error.location is not None and error.location.file == file:
        error.location = None


def is_defect(error: Exception, kernel: Callable[..., Any]) -> bool:
    """Whether an error comes out of the simulator: its code is nearer to it than the kernel's."""
    for entry in entries(error):
        if entry.tb_frame.f_code.co_filename == dispatch.__file__:
            continue  # it only passes a call on, whose arguments may not fit
        if is_inside(entry.tb_frame.f_code):
            return True
        if is_own(entry, kernel):
            return False
    return False


class PlainSimulator(EmbeddedSimulator):
    """The embedded simulator with an oracle that judges each instruction, slow and literal."""

    name = "plain"
    description = "the embedded simulator in plain mode, with an oracle (trn2, unless named)"
    plain = True

"""The embedded simulator, in its fast and in its plain mode: kernels run on NumPy, anywhere."""

from __future__ import annotations

from difftest.backends.base import Call, Crashed, Outcome, Ran, Rejected, still_poisoned
from difftest.simulator import NkiError, launch


class EmbeddedSimulator:
    """Runs kernels that were imported while the embedded modules stood for ``neuronxcc``."""

    name = "embedded"
    description = "the embedded simulator, in NumPy (trn2, unless a kernel names its platform)"
    plain = False

    def run(self, call: Call) -> Outcome:
        """Run the kernel; its own assertions and the machine's rules are rejections."""
        try:
            result = launch(
                call.kernel,
                (*call.inputs, *call.outputs),
                dict(call.parameters),
                grid=call.grid,
                record=False,
                plain=self.plain,
            )
        except (AssertionError, NkiError) as error:
            return Rejected(error)
        except Exception as error:  # a bug in the kernel's Python: becomes a failure, not hidden
            return Crashed(error)
        if call.outputs:
            return Ran(call.outputs, tuple(map(still_poisoned, call.outputs)))
        return Ran(result.outputs, result.unwritten)


class PlainSimulator(EmbeddedSimulator):
    """The embedded simulator in plain mode: the judge of the fast one, slow and literal."""

    name = "plain"
    description = "the embedded simulator in plain mode, slow and literal (trn2, unless named)"
    plain = True

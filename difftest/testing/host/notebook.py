"""The embedded simulator for a whole process, and the extension of IPython: ``%load_ext difftest``.

The extension installs the embedded modules, and loads the Hypothesis profile of interactive work.
It prints an error of a kernel as its report, without the frames of this package. After a cell it
prints the hazards of the kernels that the cell launched.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from difftest.analysis.finding import Severity
from difftest.analysis.inspection import Inspector, finding_text
from difftest.simulator import NkiError
from difftest.simulator.entry.install import ROOTS, is_embedded
from difftest.simulator.errors import name_files
from difftest.simulator.launch_listeners import listen
from difftest.support.tracebacks import hide_package
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.backends.selection import select_backends
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.explicit import CaseError
from difftest.testing.harness.failures import CaseFailure, ReportedFailure
from difftest.testing.harness.profiles import default_profile
from difftest.testing.host.installation import embedded_with_predictions

_REPORTS = (NkiError, ReportedFailure, SpecError, CaseError)
"""Errors whose text is complete without a traceback."""
_LOADED = ExitStack()
"""Undoes what the extension has done; empty if the extension is not loaded."""


def embedded() -> bool:
    """Let kernels import the embedded simulator as ``nki`` and ``neuronxcc.nki`` in this process.

    The rule is that of ``pytest --simulate``: if the Neuron SDK with its simulator is installed,
    nothing changes. A second call changes nothing either.

    Returns
    -------
    True if ``import nki`` finds the embedded simulator, False if it finds the SDK.
    """
    return _install(ExitStack())


def _install(undo: ExitStack) -> bool:
    """Install the embedded modules as :func:`embedded` does; ``undo`` uninstalls them again."""
    if all(name in sys.modules and is_embedded(sys.modules[name]) for name in ROOTS):
        return True
    (backend,) = select_backends("auto", device=False)
    if not isinstance(backend, EmbeddedSimulator):
        return False
    undo.enter_context(embedded_with_predictions())
    return True


def load_ipython_extension(shell: Any) -> None:
    """Run ``%load_ext difftest``; ``shell`` is IPython's.

    If the Neuron SDK is installed, a line says that its simulator runs the kernels.
    """
    if not _install(_LOADED):
        print("difftest: the Neuron SDK is installed, and its simulator runs kernels")
    _LOADED.enter_context(default_profile("quick"))
    name_files(lambda file: _cell_name(shell, file))
    _LOADED.callback(name_files, None)
    shell.set_custom_exc((Exception,), _show_error)
    _LOADED.callback(shell.set_custom_exc, (), None)
    hazards = _CellHazards()
    for event in ("pre_run_cell", "post_run_cell"):
        shell.events.register(event, getattr(hazards, event))
        _LOADED.callback(shell.events.unregister, event, getattr(hazards, event))
    _LOADED.callback(listen, None)


def unload_ipython_extension(shell: Any) -> None:
    """Run ``%unload_ext difftest``: undo the extension; kernels that exist continue to work."""
    _LOADED.close()


class _CellHazards:
    """The hazards of the launches in cells; a hazard of a line is printed once."""

    def __init__(self) -> None:
        self._inspector = Inspector()
        self._printed = 0

    def pre_run_cell(self, info: object) -> None:
        """Inspect the launches of the cell. IPython calls this in the context of the cell."""
        listen(self._inspector)

    def post_run_cell(self, result: object) -> None:
        """Print the new hazards on standard error."""
        found = self._inspector.findings[self._printed :]
        self._printed += len(found)
        for finding in found:
            if finding.severity is not Severity.NOTE:
                print(finding_text(finding), file=sys.stderr)


def _cell_name(shell: Any, file: str) -> str | None:
    """Return ``In[3]`` for the file in which IPython has the code of that cell; else None."""
    named = shell.compile.format_code_name(file)
    return None if named is None else str(named[1])


def _show_error(
    shell: Any,
    kind: type[BaseException],
    error: Exception,
    trace: TracebackType,
    tb_offset: int | None = None,
) -> None:
    """Print the error of a cell: its report if it is one, else the frames of the author.

    A front end that displays HTML gets the report of a failing case as HTML, and its headline.
    """
    if not isinstance(error, _REPORTS):
        hide_package(error)
        shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
        return
    text = str(error)
    if isinstance(error, CaseFailure) and _displays_html(shell):
        from IPython.display import display

        display({"text/plain": text, "text/html": error._repr_html_()}, raw=True)
        text = error.headline
    # IPython prints what this method returns in place of a traceback. `%tb` prints the traceback.
    vars(error)["_render_traceback_"] = lambda: [f"{kind.__name__}: {text}"]
    try:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    finally:
        del vars(error)["_render_traceback_"]


def _displays_html(shell: Any) -> bool:
    """Return whether the front end displays HTML: a notebook does, a terminal does not."""
    return "text/html" in shell.display_formatter.active_types

"""The values that options accept, and the package's extras.

The plugin imports this module, so it imports the standard library alone.
"""

from importlib.util import find_spec

LEVELS = ("0.3", "0.4", "0.5", "0.6", "0.7")
"""The levels of NKI for kernels of the current dialect."""
RELEASES = {level: 28 + n for n, level in enumerate(("0.2", *LEVELS))}
"""The minor number of the SDK that came with each level, 28 of 2.28 (NKI migration guide)."""
STRICTNESSES = ("documented", "seen", "relaxed")  # of the simulator's Strictness
SIMULATORS = ("auto", "embedded", "plain", "sdk")
"""The backends without a device. The first is the default."""
PAGES = (".html", ".htm")
"""The suffixes of an HTML report. Other reports are Markdown (.md) or JSON."""


def install_hint(module: str, what: str, extra: str) -> str:
    """Return how to install an extra from a path; empty if its module is installed."""
    if find_spec(module):
        return ""
    path = f"'/path/to/nki-difftest[{extra}]', the path of a checkout or of a wheel"
    return f"{what} needs {module}: pip install {path}"

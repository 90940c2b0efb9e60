"""What options and arguments choose among, and extras: light, for the plugin imports it."""

from importlib.util import find_spec

LEVELS = ("0.3", "0.4", "0.5", "0.6", "0.7")
"""Of NKI, for kernels of today's dialect."""
RELEASES = {level: 28 + n for n, level in enumerate(("0.2", *LEVELS))}
"""The minor number of the SDK that came with each level, 28 of 2.28 (NKI migration guide)."""
STRICTNESSES = ("documented", "seen", "relaxed")  # of the simulator's Strictness
SIMULATORS = ("auto", "embedded", "plain", "sdk")
"""What runs a kernel test without a device; the first where none is named."""
PAGES = (".html", ".htm")  # a report that is a page; others are Markdown (.md) or JSON


def install_hint(module: str, what: str, extra: str) -> str:
    """How to install an extra, which no registry has; empty where its module is installed."""
    path = f"'/path/to/nki-difftest[{extra}]', the path of a checkout or of a wheel"
    return "" if find_spec(module) else f"{what} needs {module}: pip install {path}"

"""What options and arguments choose among: light, for the plugin imports it."""

LEVELS = ("0.3", "0.4", "0.5", "0.6", "0.7")
"""Of NKI, for kernels of today's dialect."""
STRICTNESSES = ("documented", "seen", "relaxed")
"""The values of the simulator's Strictness."""
SIMULATORS = ("auto", "embedded", "plain", "sdk")
"""What runs a kernel test without a device; the first where none is named."""
PAGES = (".html", ".htm")
"""Suffixes of a report that is a page; others are Markdown (.md) or JSON."""

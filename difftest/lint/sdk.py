"""The Neuron SDKs that rules are about: what compiles a kernel there, and which NKI they have.

Source: release notes of NKI at v2.26.0 to v2.32.0 (``release-notes/components/nki.rst``), the
migration guide (``nki/migration/index.rst`` at v2.32.0), and the pages of v2.33 for its default.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Frontend(Enum):
    """What makes instructions of a kernel's Python."""

    CLASSIC = "the classic tracer"
    """``neuronxcc.nki``: runs the kernel, SDK 2.21 to 2.28."""
    PARSER = "the parser"
    """``nki`` 0.2 to 0.6: reads the kernel's source, and knows a part of Python."""
    TRACER = "the tracer"
    """``nki`` 0.7: runs the kernel."""


class Release(NamedTuple):
    """One release of the Neuron SDK.

    ``level`` is its NKI's for kernels of today's dialect, None where there was none.
    """

    version: str
    level: str | None
    frontend: Frontend

    @property
    def minor(self) -> int:
        """The second part of its version, by which releases are in order."""
        return int(self.version.partition(".")[2])


_LEVELS = {"2.28": "0.2", "2.29": "0.3", "2.30": "0.4", "2.31": "0.5", "2.32": "0.6", "2.33": "0.7"}


def _sdk(version: str) -> Release:
    level = _LEVELS.get(version)
    if level is None:
        return Release(version, None, Frontend.CLASSIC)
    return Release(version, level, Frontend.TRACER if version == "2.33" else Frontend.PARSER)


SDKS = {version: _sdk(version) for version in (f"2.{minor}" for minor in range(21, 34))}
"""By version, the oldest first."""
LAST_CLASSIC = SDKS["2.27"]
"""The last that compiles a file of the classic dialect as its documentation says."""
NEWEST = SDKS["2.33"]
TARGETS = ("trn1", "trn2", "trn3")
"""The machines that a compiler can be asked to compile for."""


def of_level(level: str | None) -> Release | None:
    """The SDK that has a level of NKI; None for no level, or one that no SDK has."""
    return next((one for one in SDKS.values() if level is not None and one.level == level), None)

"""Where the launch that runs is found: set for its time, and no longer."""

from __future__ import annotations

import contextvars
from typing import Any

RUNNING: contextvars.ContextVar[Any] = contextvars.ContextVar("difftest_core")

"""What a person may set for runs on a device: environment variables, read once in a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

TIMEOUT = "DIFFTEST_DEVICE_TIMEOUT"
EXEC_TIMEOUT = "NEURON_RT_EXEC_TIMEOUT"
NRTPY_PYTHON = "DIFFTEST_NRTPY_PYTHON"


class SettingError(ValueError):
    """An environment variable has a value that it does not accept."""


@dataclass(frozen=True)
class Settings:
    """The settings of a session (docs/reference/device-settings.md). Times in seconds."""

    timeout: float = 1800.0
    exec_timeout: int = 60
    nrtpy_python: str | None = None


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of an environment, of this process if none is given.

    Raises SettingError: a number is not one.
    """
    variables = os.environ if environment is None else environment

    def seconds(name: str, usual: float) -> float:
        text = variables.get(name) or str(usual)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            accepted = "accepted: a positive number of seconds"
            raise SettingError(f"{name}: received {text!r}; {accepted}")
        return value

    return Settings(
        seconds(TIMEOUT, Settings.timeout),
        int(seconds(EXEC_TIMEOUT, Settings.exec_timeout)),
        variables.get(NRTPY_PYTHON) or None,
    )

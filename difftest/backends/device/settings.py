"""What a person may set for runs on a device: environment variables, read once in a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

TIMEOUT = "DIFFTEST_DEVICE_TIMEOUT"
EXEC_TIMEOUT = "NEURON_RT_EXEC_TIMEOUT"
LEASE_WAIT = "DIFFTEST_LEASE_WAIT"
NRTPY_PYTHON = "DIFFTEST_NRTPY_PYTHON"

VARIABLES: Mapping[str, str] = {
    TIMEOUT: "seconds that compiling and running one case may take, 1800 if not set",
    EXEC_TIMEOUT: "seconds that the runtime waits for one execution, 60 if not set (AWS's pages "
    "give several defaults)",
    LEASE_WAIT: "seconds to wait for a free NeuronCore, 10 if not set",
    NRTPY_PYTHON: "the Python of the environment in which nrtpy is installed (SDK 2.32 on)",
    "DIFFTEST_LOCK_DIR": "where the locks of leased NeuronCores lie",
    "NEURON_RT_VISIBLE_CORES": "the NeuronCores to use, as 0 or 0-3; all if not set",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "the machine that the newer SDK compiles for, as trn2",
    "NEURON_LOGICAL_NC_CONFIG": "physical cores in a logical one; must equal the kernel's LNC",
}
"""Each variable, and what it is for."""


class SettingError(ValueError):
    """An environment variable has a value that it does not accept."""


@dataclass(frozen=True)
class Settings:
    """The settings of a session. Times in seconds."""

    timeout: float = 1800.0
    exec_timeout: int = 60
    lease_wait: float = 10.0
    nrtpy_python: str | None = None


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of an environment, of this process if none is given.

    Raises
    ------
    SettingError : a number is not one.
    """
    given = os.environ if environment is None else environment
    usual = Settings()
    return Settings(
        timeout=_number(given, TIMEOUT, usual.timeout),
        exec_timeout=int(_number(given, EXEC_TIMEOUT, usual.exec_timeout)),
        lease_wait=_number(given, LEASE_WAIT, usual.lease_wait),
        nrtpy_python=given.get(NRTPY_PYTHON) or None,
    )


def _number(environment: Mapping[str, str], name: str, usual: float) -> float:
    text = environment.get(name)
    if not text:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise SettingError(f"{name}: received {text!r}; accepted: a positive number of seconds")
    return value

"""Select the requested backends, or raise an error that names the missing one."""

from __future__ import annotations

from difftest.testing.backends.base import Backend, BackendMissingError
from difftest.testing.backends.sdk import sdk_simulator


def select_backends(
    simulate: str | None,
    device: bool,
    level: str | None = None,
    strictness: str | None = None,
) -> tuple[Backend, ...]:
    """Return the requested backends, each ready to run.

    ``simulate`` is a choice of difftest/support/choices.py, or None for no simulator. "auto" is the
    SDK's simulator if the SDK is installed, else the embedded one. Only the embedded simulator
    takes a level of NKI and a strictness.

    Raises
    ------
    BackendMissingError : a backend is missing, or the request contradicts itself.
    """
    backends: list[Backend] = []
    if device:
        from difftest.testing.backends.device.core import device_backend

        backends.append(device_backend())
    if simulate in ("auto", "sdk"):
        try:
            backends.insert(0, sdk_simulator())
        except BackendMissingError:
            if simulate == "sdk":
                raise
            simulate = "embedded"
    if simulate in ("embedded", "plain") and device:
        raise BackendMissingError(
            "the embedded simulator and the device cannot share a run: for the one, neuronxcc is "
            "the embedded modules, for the other the SDK.\n"
            "  remedy: --simulate=sdk --device, or one run for each"
        )
    if simulate in ("embedded", "plain"):
        from difftest.testing.backends.embedded import EmbeddedSimulator, PlainSimulator

        kind = EmbeddedSimulator if simulate == "embedded" else PlainSimulator
        backends.insert(0, kind(level, strictness))
    embedded_only = {"a level of NKI": level, "a strictness": strictness}
    for name, value in embedded_only.items():
        if value is not None and simulate not in ("embedded", "plain"):
            raise BackendMissingError(
                f"{name} ({value}) is for the embedded simulator: the SDK and a device have their "
                "own.\n  remedy: --simulate=embedded"
            )
    return tuple(backends)

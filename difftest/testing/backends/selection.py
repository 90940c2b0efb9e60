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
        else:
            simulate = None
    if simulate is None:
        return _without_options(tuple(backends), level, strictness)
    if device:
        raise BackendMissingError(
            "the embedded simulator and the device cannot share a run: for the one, neuronxcc is "
            "the embedded modules, for the other the SDK.\n"
            "  remedy: --simulate=sdk --device, or one run for each"
        )
    from difftest.testing.backends.embedded import EmbeddedSimulator, PlainSimulator

    kind = PlainSimulator if simulate == "plain" else EmbeddedSimulator
    return (kind(level, strictness),)


def _without_options(
    backends: tuple[Backend, ...], level: str | None, strictness: str | None
) -> tuple[Backend, ...]:
    """Return backends other than the embedded simulator; raise if its options were given."""
    for name, value in (("a level of NKI", level), ("a strictness", strictness)):
        if value is not None:
            raise BackendMissingError(
                f"{name} ({value}) is for the embedded simulator: the SDK and a device have their "
                "own.\n  remedy: --simulate=embedded"
            )
    return backends

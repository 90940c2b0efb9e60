"""Which backends run: those that were asked for, each ready, or an error that says what lacks."""

from __future__ import annotations

from difftest.backends.base import Backend, BackendMissingError


def select_backends(
    simulate: str | None, device: bool, level: str | None = None, strictness: str | None = None
) -> tuple[Backend, ...]:
    """The backends that were asked for, each ready to run.

    Parameters
    ----------
    simulate : one of those in difftest/choices.py, or None for no simulator; "auto" is the SDK's
        where the SDK is installed, else the embedded one.
    device : whether to run on the device too.
    level : of NKI, for kernels of today's dialect on the embedded simulator.
    strictness : which broken rules are warnings on the embedded simulator; None for its default.

    Raises
    ------
    BackendMissingError : one of them is not here, or no embedded simulator that takes a level or
        a strictness.
    """
    backends: list[Backend] = []
    if device:
        from difftest.backends.device.backend import device_backend

        backends.append(device_backend())
    if simulate == "auto":
        simulate = "sdk" if _sdk_has_simulator() else "embedded"
    if simulate in ("embedded", "plain") and device:
        raise BackendMissingError(
            "the embedded simulator and the device cannot share a run: for the one, neuronxcc is "
            "the embedded modules, for the other the SDK.\n"
            "  remedy: --simulate=sdk --device, or one run for each"
        )
    if simulate == "sdk":
        from difftest.backends.sdk import sdk_simulator

        backends.insert(0, sdk_simulator())
    elif simulate == "embedded":
        from difftest.backends.embedded import EmbeddedSimulator

        backends.insert(0, EmbeddedSimulator(level, strictness))
    elif simulate == "plain":
        from difftest.backends.embedded import PlainSimulator

        backends.insert(0, PlainSimulator(level, strictness))
    if level is not None and simulate not in ("embedded", "plain"):
        raise BackendMissingError(
            f"a level of NKI ({level}) is for the embedded simulator: the SDK has a level of its "
            "own.\n  remedy: --simulate=embedded"
        )
    if strictness is not None and simulate not in ("embedded", "plain"):
        raise BackendMissingError(
            f"a strictness ({strictness}) is for the embedded simulator: the SDK and a device have "
            "rules of their own.\n  remedy: --simulate=embedded"
        )
    return tuple(backends)


def _sdk_has_simulator() -> bool:
    from difftest.backends.detection import detect_sdk
    from difftest.backends.sdk import has_simulator

    return has_simulator(detect_sdk())

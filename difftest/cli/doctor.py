"""`difftest doctor`: the backends that work here, and how to install the others."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from difftest.testing.backends.sdk import Sdk


_WITHOUT_SDK = (
    "a ModuleNotFoundError in `python script.py` is expected without the SDK.\n"
    "  remedy: pytest --simulate, difftest run script.py, or difftest.embedded() before the\n"
    "          import; %load_ext difftest in a notebook"
)


def _import_text(sdk: Sdk) -> str:
    """Return what ``import nki`` finds in a plain script, and what to do if it finds nothing."""
    if sdk.newer.module is not None:
        return "finds the SDK; --simulate=embedded and difftest run replace it"
    return _WITHOUT_SDK


@click.command()
@click.pass_context
def doctor(context: click.Context) -> None:
    """Show which backends work here, and why the others do not.

    The command runs nothing on a device and changes nothing. The exit code is 0 if the device
    works, and 1 if only simulators work.
    """
    from difftest.testing.backends.base import Backend, BackendMissingError
    from difftest.testing.backends.device.core import device_backend
    from difftest.testing.backends.sdk import detect_sdk, sdk_simulator

    sdk = detect_sdk()
    computer = (
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )
    rows = [("  ", "computer", f"{computer} (the SDK is for Linux x86_64)")]
    for subject, detection in (("classic SDK", sdk.classic), ("newer SDK", sdk.newer)):
        rows.append(
            ("--" if detection.module is None else "ok", subject, detection.state)
        )
    rows.append(("  ", "import nki", _import_text(sdk)))
    rows.append(("ok", "--simulate=embedded", "part of this package: works everywhere"))
    backends: dict[str, Callable[[], Backend]] = {
        "--simulate=sdk": lambda: sdk_simulator(sdk),
        "--device": lambda: device_backend(sdk),
    }
    missing = set()
    for option, make in backends.items():
        try:
            rows.append(("ok", option, make().description))
        except BackendMissingError as error:
            rows.append(("--", option, str(error)))
            missing.add(option)
    rows.append(("  ", "measurements", "no path to a device has ever run on one"))
    for mark, subject, text in rows:
        indented = text.replace("\n", "\n      ")
        click.echo(f"{mark}  {subject:<19}  {indented}")
    context.exit(1 if "--device" in missing else 0)

"""`difftest init`: a first kernel with its reference and its test."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from difftest.support.output import write_file

NAMES = ("scale.py", "scale_reference.py", "test_scale.py")
"""A kernel in the current dialect, its reference, and their test."""
CONFIG = "pytest.ini"
CONFIGS = (
    CONFIG,
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
"""Files that pytest reads its options from."""
SETTING = "difftest_simulate = auto"
"""The setting with which pytest and editors collect kernel tests without an option."""


@click.command()
@click.argument(
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    required=False,
)
def init(folder: Path) -> None:
    """Write a first kernel, its reference and its test into FOLDER.

    The default is the current folder. `pytest --simulate` runs the test, and it passes. If no file
    configures pytest yet, a pytest.ini is written, with which `pytest` alone runs it too. If one of
    the files exists already, nothing is written.
    """
    existing = [name for name in NAMES if (folder / name).exists()]
    if existing:
        raise click.ClickException(
            f"{folder / existing[0]} is there already, and stays as it is; name another folder"
        )
    first = files("difftest.cli") / "first"
    texts = {name: (first / f"{name}.txt").read_text("utf-8") for name in NAMES}
    config = _find_config(folder)
    if config is None:
        texts[CONFIG] = f"[pytest]\n{SETTING}\n"
    for name, text in texts.items():
        write_file(folder / name, text)
    for name in texts:
        click.echo(folder / name)
    _print_next_steps(folder, config)


def _find_config(folder: Path) -> Path | None:
    """Return the nearest file that configures pytest, in the folder or above, or None."""
    inside = folder.resolve()
    places = (place / name for place in (inside, *inside.parents) for name in CONFIGS)
    return next((place for place in places if place.is_file()), None)


def _print_next_steps(folder: Path, config: Path | None) -> None:
    """Print the commands that run the tests."""
    if folder == Path():
        where = ""
    elif " " in str(folder):
        where = f' "{folder}"'
    else:
        where = f" {folder}"
    click.echo(f"now: pytest --simulate{where}")
    if config is None:
        click.echo(
            f"or: pytest{where}, for {CONFIG} says {SETTING}, and editors see the tests"
        )
    else:
        setting = (
            SETTING.replace("auto", '"auto"') if config.suffix == ".toml" else SETTING
        )
        click.echo(
            f"{config} stays as it is; with {setting} among its pytest options, "
            "pytest alone runs kernel tests, and editors see them"
        )

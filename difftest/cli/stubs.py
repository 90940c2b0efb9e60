"""`difftest stubs`: NKI for editors and type checkers without an installed SDK."""

from __future__ import annotations

from pathlib import Path

import click

from difftest.support.output import write_file


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def stubs(folder: Path) -> None:
    """Write stubs of nki and neuronxcc.nki into FOLDER, for editors.

    The folder is a distribution that pip installs. docs/how-to/editor.md has the settings of
    editors.
    """
    from difftest.tools.lint.stubs import stub_files

    files = stub_files()
    for name, text in files.items():
        write_file(folder / name, text)
    where = str(folder.absolute())  # pip takes a bare name for a package of the index
    where = f'"{where}"' if " " in where else where
    click.echo(
        f"{len(files)} files in {folder}; install them with: pip install {where}"
    )

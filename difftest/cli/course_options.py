"""Options that the commands of the course share."""

from __future__ import annotations

from pathlib import Path

import click

solution_argument = click.argument(
    "file",
    metavar="conv2d.py",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
maxpool_option = click.option(
    "--test-maxpool", is_flag=True, help="Include the tests with max pooling."
)

"""`difftest api`: which names of NKI the simulator has, and what its instructions take."""

from __future__ import annotations

import click


@click.command()
def api() -> None:
    """Write the table of the supported API as Markdown.

    Each name that AWS documents, whether it is modelled, and of each instruction its engines,
    operands and evidence of cost. It is the page docs/reference/generated/api.md of the repository.
    """
    from difftest.tools.api.markdown import api_page

    click.echo(api_page(), nl=False)

"""`difftest api`: the names of NKI that the simulator has, and the operands of instructions."""

from __future__ import annotations

import click


@click.command()
def api() -> None:
    """Write the table of the supported API as Markdown.

    The table lists each name that AWS documents, and whether it is modelled. Each instruction has
    its engines, its operands and the evidence for its cost. The repository keeps this page as
    docs/reference/generated/api.md.
    """
    from difftest.tools.api.markdown import api_page

    click.echo(api_page(), nl=False)

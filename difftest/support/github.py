"""Workflow commands: lines of a step's output that GitHub shows at lines of a pull request.

Source: docs.github.com, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

import os


def in_github_actions() -> bool:
    """Return whether this process runs in a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def workflow_command(severity: str, message: str, **properties: object) -> str:
    """Return a command that annotates a line.

    Parameters
    ----------
    severity : "error", "warning" or "notice".
    message : the text of the annotation. It may have several lines.
    properties : ``file``, ``line`` and others, in the order of the command.
    """
    named = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
    )
    return f"::{severity} {named}::{_escaped(message)}"


def _escaped(value: object) -> str:
    text = str(value).replace("%", "%25")
    return text.replace("\r", "%0D").replace("\n", "%0A")

"""Run the notebooks of the docs.

``python -m tests.notebooks`` writes their outputs into them.
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs").rglob("*.ipynb"))
SECONDS = 120
"""The most seconds of a cell, on a busy computer."""


def run_notebook(file, folder):
    """Return a notebook with the outputs of a run in a folder; a cell may have the tag for errors.

    Cells have no times of execution, which differ between runs.
    """
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    return client.execute()


if __name__ == "__main__":
    for file in NOTEBOOKS:
        ran = run_notebook(file, file.parent)
        ran.metadata.pop("language_info", None)
        nbformat.write(ran, file)

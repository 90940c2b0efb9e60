"""The notebook of the tutorial, run by a kernel of Jupyter as its reader runs it."""

import re

import nbformat
import pytest

from tests.notebooks import NOTEBOOKS, run_notebook


def shown(notebook):
    """The text of each output, by the number of its cell; numbers are left out, as some vary."""
    return [
        (number, output.output_type, re.sub(r"\d[\d,.]*", "0", text(output)))
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", ())
    ]


def text(output):
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.text if output.output_type == "stream" else output.data["text/plain"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_shows_the_results_of_its_cells(file, tmp_path):
    ran = run_notebook(file, tmp_path)
    assert shown(ran) == shown(nbformat.read(file, as_version=4))


def test_the_notebook_of_the_tutorial_finds_the_smallest_case():
    """The comparison above leaves numbers out."""
    (file,) = NOTEBOOKS
    notebook = nbformat.read(file, as_version=4)
    texts = [
        text(output) for cell in notebook.cells for output in cell.get("outputs", ())
    ]
    assert any("case:        rows=129, columns=1, float32\n" in each for each in texts)
    rich = [
        output.data["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    assert len(rich) == 2  # the failure and the profile
    assert not any("\x1b[" in each for each in [*rich, *texts])

"""The site of the docs: Sphinx reads the same Markdown that people read in the repository.

``tox -e docs`` builds it, and every warning is an error: a link without a target, a page that the
list in index.md does not name.
"""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

from difftest.cli.signatures import signature_pages
from difftest.tools.lint.formats import rules_page

GENERATED = "reference/generated"
RULES = f"{GENERATED}/lint-rules.md"

project = "nki-difftest"
author = "The nki-difftest authors"
project_copyright = author
version = release = version_of(project)

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True
myst_heading_anchors = 4
"""Headings are targets by the names that GitHub gives them."""
myst_enable_extensions = ["attrs_inline"]  # see with_targets

highlight_language = "none"  # of a block that names no language
html_theme = "furo"
html_title = project
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "tango"
pygments_dark_style = "monokai"


def with_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Make the site's contents of the lists of links in index.md: a part for each heading."""
    if name != root_doc:
        return
    for part in source[0].split("\n## ")[1:]:
        title = part.partition("\n")[0]
        pages = re.findall(r"^- \[.*?\]\((\S+)\.md\)", part, re.MULTILINE)
        rows = [
            "",
            "",
            "```{toctree}",
            ":hidden:",
            f":caption: {title}",
            "",
            *pages,
            "```",
            "",
        ]
        source[0] += "\n".join(rows)


def with_targets(app: Sphinx, name: str, source: list[str]) -> None:
    """Tell Sphinx of targets that a page writes as HTML: in a line of their own, or in a cell."""
    text = re.sub(r'^<a id="(\w+)"></a>$', r"(\1)=", source[0], flags=re.MULTILINE)
    source[0] = re.sub(r'<a id="(\w+)"></a>', r"[]{#\1}", text)


def with_rules(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead links to the linter's pages, which are outside of docs/, to the site's page of all."""
    text = re.sub(r"\]\([./]+/difftest/tools/lint/pages\)", f"](/{RULES})", source[0])
    source[0] = re.sub(
        r"\]\([./]+/difftest/tools/lint/pages/(\w+)\.md\)", r"](#\1)", text
    )


def write_rules(app: Sphinx) -> None:
    """Write the pages that git does not keep: all rules, which repeat theirs, and signatures."""
    Path(app.srcdir, RULES).write_text(rules_page(), encoding="utf-8")
    for page, text in signature_pages().items():
        Path(app.srcdir, GENERATED, f"{page}.md").write_text(text, encoding="utf-8")


def with_signatures(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead from the table of the API to the pages of signatures, which the site alone has."""
    if name == f"{GENERATED}/api":
        links = ", ".join(f"[{page}]({page}.md)" for page in signature_pages())
        title, rest = source[0].split("\n", 1)
        text = f"The arguments of each function are on these pages: {links}."
        source[0] = f"{title}\n\n{text}\n{rest}"


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", write_rules)
    app.connect("source-read", with_targets)
    app.connect("source-read", with_rules)
    app.connect("source-read", with_signatures)
    app.connect("source-read", with_contents)

"""Make the pictures of the README and of the docs: ``python docs/pictures/make.py [NAME …]``.

Each picture of a failure or a profile is the output of a command on the code that a page shows.
The picture of the package's folders is drawn from their imports. Needs this package with the
extras ``plot``, ``report`` and ``lint``, in the Python that runs the script. ``page`` needs
Chromium too.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any
from xml.sax.saxutils import escape

import grimp
from hypothesis import Phase, given, seed, settings
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from difftest.testing.contract.case import Case
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.harness.decorated import kernel_test_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COLUMNS = 106
BREAK = ("src=x[first : first + count, :]", "src=x[0:count, :]")
"""The bug that the README plants."""
SHAPE = "--shape 4096,64 --set factor=2.0"
INK = (36, 41, 47)
GREY = (90, 98, 108)
HUES = [
    (190, 30, 45),
    (20, 110, 60),
    (140, 90, 0),
    (9, 90, 180),
    (120, 60, 160),
    (20, 110, 120),
]
LIGHT = TerminalTheme((250, 250, 248), INK, [INK, *HUES, GREY], [GREY, *HUES, INK])
PALE = (230, 235, 242)
DIM = (163, 175, 191)
GLOWING = [
    (255, 138, 128),
    (111, 217, 155),
    (255, 202, 107),
    (140, 196, 255),
    (214, 170, 255),
]
DARK = TerminalTheme(
    (18, 22, 28), PALE, [PALE, *GLOWING, DIM, DIM], [DIM, *GLOWING, DIM, PALE]
)
"""Colours for a dark system. Both sets have enough contrast on any page."""
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without fonts from elsewhere: any monospaced one will do."""


def blocks(page: Path) -> list[str]:
    """Return the Python that a page shows, in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def output(command: str, folder: Path) -> str:
    """Return the coloured output of a command of this Python, ``pytest`` or ``difftest``."""
    program, *arguments = shlex.split(command)
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    environment["PYTEST_ADDOPTS"] = (
        "-n 0 --hypothesis-seed=2"  # the same cases each time
    )
    environment.pop("CI", None)
    run = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(
        run, cwd=folder, env=environment, text=True, stdout=PIPE, stderr=STDOUT
    )
    return done.stdout


def draw(name: str, title: str, text: RenderableType) -> None:
    """Write text as a terminal shows it."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(text)
    form = {
        "title": title,
        "code_format": FORMAT,
        "unique_id": f"difftest-{name}",
        "clear": False,
    }
    light, dark = (console.export_svg(theme=theme, **form) for theme in (LIGHT, DARK))
    rules = "\n".join(re.findall(r"^ *\.[\w-]+-r\d+ \{.*\}$", dark, re.MULTILINE))
    ground = DARK.background_color.hex
    ink = DARK.foreground_color.hex
    rules += (
        f"\nsvg > rect {{ fill: {ground} }} .difftest-{name}-title {{ fill: {ink} }}"
    )
    media = f"@media (prefers-color-scheme: dark) {{\n{rules}\n}}\n    </style>"
    picture = HERE / f"{name}.svg"
    picture.write_text(light.replace("</style>", media), encoding="utf-8")
    print(picture.relative_to(ROOT))


def report(printed: str) -> Text:
    """Return the report of a failure in pytest's output."""
    lines = [Text.from_ansi(line) for line in printed.splitlines()]
    first = next(
        n
        for n, line in enumerate(lines)
        if "disagrees with its reference" in line.plain
    )
    last = next(n for n, line in enumerate(lines) if "run again:" in line.plain)
    return Text("\n").join(lines[first : last + 1])


def session(commands: list[str], folder: Path) -> Text:
    """Commands and their output, without lines that depend on this computer."""
    text = Text()
    for command in commands:
        text.append(f"$ {command}\n", style="bold blue")
        for line in output(command, folder).splitlines():
            if not re.match(
                r"(platform|rootdir:|plugins:|\x1b\[1m=+ test session)", line
            ):
                text.append_text(
                    Text.from_ansi(re.sub(r" in [\d.]+s", "", line))
                ).append("\n")
    return text


def failure(folder: Path) -> None:
    """Draw the report of the README's kernel with its planted bug."""
    kernel, test = blocks(ROOT / "README.md")[:2]
    (folder / "scale.py").write_text(kernel.replace(*BREAK), encoding="utf-8")
    (folder / "test_scale.py").write_text(test, encoding="utf-8")
    draw("failure", "pytest --simulate", report(output("pytest --simulate", folder)))


def page_words(page: str) -> list[str]:
    """Return the words that a page shows, each once."""
    shown = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]+>", " ", page)
    return sorted(set(re.findall("[A-Za-z]{3,}", shown)))


def page(folder: Path) -> None:
    """Draw the page of the same failure with Chromium, which must be installed."""
    kernel, test = blocks(ROOT / "README.md")[:2]
    (folder / "scale.py").write_text(kernel.replace(*BREAK), encoding="utf-8")
    (folder / "test_scale.py").write_text(test, encoding="utf-8")
    output("pytest --simulate --difftest-report=page.html", folder)
    picture = HERE / "report.png"
    browser = "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run"
    options = [f"--user-data-dir={folder / 'browser'}", "--window-size=1280,1560"]
    pages = [f"--screenshot={picture}", (folder / "page.html").as_uri()]
    subprocess.run([*browser.split(), *options, *pages], check=True, stderr=PIPE)
    text = (folder / "page.html").read_text(encoding="utf-8")
    said = PngInfo()
    said.add_text(
        "page", " ".join(page_words(text))
    )  # which a test compares with today's page
    image = Image.open(picture).quantize(256)  # half the bytes
    image.save(picture, optimize=True, pnginfo=said)
    print(picture.relative_to(ROOT))


def first_kernel(folder: Path) -> None:
    """Draw the passing session of the files of ``difftest init``."""
    draw(
        "green",
        "first",
        session(["difftest init first", "pytest --simulate first"], folder),
    )


def profiles(folder: Path) -> None:
    """Draw the profiles of the tutorial's two kernels."""
    output("difftest init .", folder)
    (flat,) = blocks(ROOT / "docs" / "tutorial" / "first-profile.md")
    (folder / "scale_flat.py").write_text(flat, encoding="utf-8")
    for kernel in ("scale.py:scale_rows", "scale_flat.py:scale_flat"):
        picture = HERE / f"{kernel.rpartition(':')[2]}.png"
        print(output(f"difftest profile {kernel} {SHAPE} --plot {picture}", folder))


def drawn(folder: Path) -> None:
    """Print the rows of drawn cases for the page of a test's arguments."""
    (code,) = blocks(ROOT / "docs" / "reference" / "kernel-test.md")
    found: dict[str, Any] = {}
    exec(code, found)
    spec = kernel_test_of(found["test_gathers"]).spec  # type: ignore[union-attr]

    @seed(3)
    @settings(
        max_examples=8,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        backend=BACKEND,
    )
    @given(cases(spec))
    def show(case: Case) -> None:
        cells = [
            ", ".join(
                [*(f"{name}={one}" for name, one in case.values.items()), case.dtype]
            )
        ]
        for name in (*spec.inputs, *spec.outputs):
            data = f" {case.data[name]!r}" if name == "rows" else ""
            dtype = "float32" if name == "largest" else case.dtype_of(name)
            cells.append(f"{spec.shape(name, case.values)} {dtype}{data}")
        print(f"| {' | '.join(cells)} |")

    show()


FOLDER_STYLE = """
svg { font-family: monospace; font-size: 13px }
.ground { fill: #fafaf8 } .box { fill: #fff; stroke: #9aa4b0 } .line { stroke: #d5dae0 }
.name { fill: #24292f; font-weight: bold } .text { fill: #5a626c } .dot { fill: #095ab4 }
@media (prefers-color-scheme: dark) {
.ground { fill: #12161c } .box { fill: #1b212a; stroke: #566273 } .line { stroke: #2f3845 }
.name { fill: #e6ebf2 } .text { fill: #a3afbf } .dot { fill: #8cc4ff }
}
"""
ROW, CELL, LEFT, TOP, WIDTH = 46, 44, 20, 96, 560
"""Pixels: the height of a row, the width of a column, and the place and width of the boxes."""


def folder_names() -> list[str]:
    """Return the package's folders, from top to bottom, as the contract in pyproject.toml does."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'containers = \["difftest"\]\n.*\nlayers = \[(.*)\]', text)
    assert found
    return [name for name in re.findall(r"\w+", found[1]) if name != "__main__"]


def folders(folder: Path) -> None:
    """Draw the eight folders of the package, the parts of each, and which imports which."""
    graph = grimp.build_graph(
        "difftest", exclude_type_checking_imports=True, cache_dir=None
    )
    names = folder_names()
    height = TOP + ROW * len(names) + 16
    width = LEFT + WIDTH + CELL * len(names) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f"<style>{FOLDER_STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
        f'<text class="text" x="{LEFT}" y="30">difftest: a folder imports the ones below it</text>',
    ]
    middles = [TOP + ROW * row + 18 for row in range(len(names))]
    for column, name in enumerate(names):
        x = LEFT + WIDTH + CELL * column + 24
        lines += [
            f'<text class="text" transform="translate({x} {TOP - 10}) rotate(-45)">{name}</text>',
            f'<path class="line" d="M{x} {TOP} V{height - 16}"/>',
        ]
    for y, name in zip(middles, names, strict=True):
        inner = [
            child.rpartition(".")[2]
            for child in sorted(graph.find_children(f"difftest.{name}"))
            if graph.find_children(child)
        ]
        text = escape("  ".join(inner) or "modules only")
        lines += [
            f'<path class="line" d="M{LEFT} {y} H{width - 40}"/>',
            f'<rect class="box" x="{LEFT}" y="{y - 17}" width="{WIDTH - 10}" height="34" rx="5"/>',
            f'<text class="name" x="{LEFT + 12}" y="{y + 4}">{name}/</text>',
            f'<text class="text" x="{LEFT + 112}" y="{y + 4}">{text}</text>',
        ]
    packages = {f"difftest.{name}" for name in names}
    for package in packages:
        graph.squash_module(package)
    for y, importer in zip(middles, names, strict=True):
        for column, imported in enumerate(names):
            if importer != imported and graph.direct_import_exists(
                importer=f"difftest.{importer}", imported=f"difftest.{imported}"
            ):
                x = LEFT + WIDTH + CELL * column + 24
                title = f"<title>{importer} imports {imported}</title>"
                lines.append(
                    f'<circle class="dot" cx="{x}" cy="{y}" r="7">{title}</circle>'
                )
    picture = HERE / "folders.svg"
    picture.write_text("\n".join([*lines, "</svg>", ""]), encoding="utf-8")
    print(picture.relative_to(ROOT))


def main() -> None:
    """Make the named pictures, or all, each in a folder of its own."""
    makers = failure, page, first_kernel, profiles, drawn, folders
    for make in [one for one in makers if one.__name__ in sys.argv] or makers:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))


if __name__ == "__main__":
    main()

"""The pages under docs/: listed, short, with links that exist, and commands that print as shown."""

import doctest
import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from itertools import permutations
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

import grimp
import numpy as np
import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.simulator import NkiError, launch, trace_to_json
from difftest.simulator.entry.install import embedded
from difftest.testing.backends.device.timers import StageResult
from difftest.testing.drawing.explicit import minimal_case
from difftest.testing.harness.decorated import kernel_test_of
from difftest.testing.harness.edges import minimal_values
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.unit.tools.lint.mypy_here import said_by_mypy, write_untyped_numpy

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
ON_THE_SITE = DOCS / "reference" / "generated" / "lint-rules.md"
"""Written where the site is built; it repeats the pages in difftest/tools/lint/pages."""
PAGES = sorted(
    set(DOCS.rglob("*.md")) - {ON_THE_SITE, *ON_THE_SITE.parent.glob("signatures-*.md")}
)
READ = [page for page in PAGES if page.parent.name != "generated"]
"""Those that people write and read from the first line to the last."""
LINKED = [
    *PAGES,
    *ROOT.glob("*.md"),
    *(ROOT / d / "README.md" for d in ("tests", "conformance")),
]
LINES = 200
CHARACTERS = 13_000
BLOCK = re.compile(r"^```(\w*)( [a-z ]+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", re.DOTALL)
"""A command with its continuation lines, and its output."""
FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a snippet that is a file of its own."""
TUTORIAL = DOCS / "tutorial"
FILES = Path(__file__).parent / "pages"
"""Files that commands on a page read and the page does not show, in a folder of its name."""
EXAMPLES = ("machines", "test_machines", "NKL116")
"""Names of files that a recipe adds."""
FOLDERS = ("", "difftest", "difftest/simulator", "tests/unit/simulator")
"""Paths in a recipe begin at one of these."""
REPOSITORY = ("conftest.py", "kernels", "pyproject.toml", "reference", "tests")


def text_of(page):
    return page.read_text(encoding="utf-8")


def blocks(page, language="python"):
    """The code blocks of a page in a language."""
    return [code for name, _, code in BLOCK.findall(text_of(page)) if name == language]


def links(page):
    """Return the targets of a page's links, by (file, place in it), without web addresses."""
    prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", text_of(page)))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" not in target:
            file, _, place = target.partition("#")
            yield (page.parent / file).resolve() if file else page, place


def places(page):
    """The names of a page's headings, as GitHub gives them, and of its own targets."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text_of(page)), re.MULTILINE)
    plain = [
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    ]
    return {*plain, *re.findall(r'<a id="(\w+)"></a>', text_of(page))}


def test_each_page_is_listed_once():
    listed = re.findall(r"^- \[.+?\]\((\S+\.md)\)", text_of(INDEX), re.MULTILINE)
    assert sorted(DOCS / page for page in listed) == [
        page for page in PAGES if page != INDEX
    ]


def test_links_lead_somewhere():
    lost = [
        f"{page.relative_to(ROOT)}: {file.name}#{place}"
        for page in LINKED
        for file, place in links(page)
        if not file.exists() or (place and place not in places(file))
    ]
    assert lost == []
    assert sum(1 for page in LINKED for _ in links(page)) > 200


def test_code_that_recipes_name_exists():
    """Private functions and modules, which no import on a page shows."""
    recipes = [page for page in READ if page.parent.name == "contributing"]
    source = "".join(map(text_of, (ROOT / "difftest").rglob("*.py")))
    folders = [ROOT / folder for folder in FOLDERS]
    lost = []
    count = 0
    for page in recipes:
        prose = BLOCK.sub("", text_of(page))
        for name in re.findall(r"`(_[a-z]\w+)`", prose):
            count += 1
            if not re.search(rf"\b{name}\b", source):
                lost.append(f"{page.name}: {name}")
        for path in re.findall(r"`([\w/]+/\w+\.(?:py|csv|md))`", prose):
            count += 1
            is_example = "NAME" in path or Path(path).stem in EXAMPLES
            if not is_example and not any(
                (folder / path).exists() for folder in folders
            ):
                lost.append(f"{page.name}: {path}")
    assert lost == []
    assert count > 50


def test_pages_are_short():
    long = [
        f"{page.relative_to(ROOT)}: {text_of(page).count(chr(10))} lines, {len(text_of(page))}"
        for page in READ
        if text_of(page).count("\n") > LINES or len(text_of(page)) > CHARACTERS
    ]
    assert long == []


def test_snippets_need_the_installed_package_alone():
    """``kernels`` and ``reference`` are folders of this repository, which no wheel has."""
    code = [code for page in READ for code in blocks(page)]
    assert len(code) > 10
    assert [
        each for each in code if re.search(r"(from|import) (kernels|reference)\b", each)
    ] == []


def test_the_imports_on_pages_exist():
    """In each block of code, whether it is run."""
    imports = re.compile(
        r"^ *from (difftest[\w.]*) import (\((?:[^)]*)\)|.+)$", re.MULTILINE
    )
    found = {
        (page.name, module, name.strip())
        for page in {*READ, *LINKED}
        for *_, code in BLOCK.findall(text_of(page))
        for module, names in imports.findall(code)
        for name in names.strip("()").split(",")
        if name.strip()
    }
    assert len(found) > 20
    lost = [each for each in found if not hasattr(import_module(each[1]), each[2])]
    assert lost == []


def test_snippets_run(tmp_path, monkeypatch):
    """A snippet without a file name is run; snippets of a page share names, as in a notebook."""
    run = []
    for page in READ:
        loose = [code for code in blocks(page) if not FILE.match(code)]
        if loose and page.parent != TUTORIAL and page.name != "trace-json.md":
            names = {"__name__": page.stem}
            for number, code in enumerate(loose):
                file = tmp_path / f"{page.stem}_{number}.py"
                file.write_text(code, encoding="utf-8")
                exec(compile(code, str(file), "exec"), names)
            run.append(names)
    by_page = {names["__name__"]: names for names in run}
    assert by_page["run-a-kernel"]["result"].outputs[0].tolist()[1] == [4.0, 6.0]
    assert by_page["run-a-kernel"]["verdict"].elements == 8
    assert by_page["profile-a-kernel"]["prediction"].get_latency_percentile(50) > 0
    assert trace_to_json(by_page["trace"]["again"]) == by_page["trace"]["text"]
    assert by_page["tape"]["again"].outputs[0].tolist() == [[6, 8]]
    programs = {"run-a-kernel", "profile-a-kernel", "trace", "tape"}
    assert set(by_page) == programs | {"choose-inputs", "kernel-test"}


def test_the_kernel_tests_on_the_pages_pass(pytester, in_process):
    for page in READ:
        for code in blocks(page):
            if name := FILE.match(code):
                (pytester.path / name[1]).write_text(code, encoding="utf-8")
    result = in_process("--simulate", "--hypothesis-profile=device")
    # test-a-kernel: drawn, edges, the rejection, the example in 2 dtypes; the other,
    # the skill for agents, and test-an-update: drawn, edges
    result.assert_outcomes(passed=1 + 1 + 1 + 2 + (1 + 1) * 3)
    result.stdout.fnmatch_lines(
        ["identical kernels: all bits agree in all cases of * pair*"]
    )


def test_the_tutorial_shows_the_files_of_init(tmp_path):
    assert CliRunner().invoke(main, ["init", str(tmp_path)]).exit_code == 0
    shown = blocks(TUTORIAL / "first-kernel.md")
    assert len(shown) == 3
    assert sorted(shown) == sorted(text_of(file) for file in tmp_path.glob("*.py"))


def test_the_tutorial_profiles_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "scale", raising=False)
    page = TUTORIAL / "first-profile.md"
    CliRunner().invoke(main, ["init", "."])
    (flat,) = blocks(page)
    (tmp_path / "scale_flat.py").write_text(flat, encoding="utf-8")
    plain = blocks(page, "")
    said = ""
    for command in (code for code in plain if code.startswith("difftest profile")):
        arguments = shlex.split(command.partition(" --plot")[0])[1:]
        result = CliRunner(env={"COLUMNS": "104"}).invoke(main, arguments)
        assert result.exit_code == 0, result.output
        said += result.output
    shown = [
        line for code in plain if "difftest " not in code for line in code.splitlines()
    ]
    assert len(shown) == 6 + 1 + 2
    assert [line for line in shown if line not in said] == []


def test_the_page_of_checks_shows_the_error_as_it_is(tmp_path):
    kernel, _, _ = blocks(TUTORIAL / "first-kernel.md")
    file = tmp_path / "scale.py"
    file.write_text(kernel.replace("128", "256"), encoding="utf-8")
    names = {"__name__": "scale"}
    with embedded():
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    with pytest.raises(NkiError) as caught:
        launch(names["scale_rows"], [np.ones((300, 4), np.float32)], {"factor": 2.0})
    (shown,) = blocks(DOCS / "reference" / "checks.md", "")
    said = f"{type(caught.value).__name__}: {caught.value}\n"
    assert said.replace(f"{tmp_path}/", "") == shown


class Session(NamedTuple):
    """A command of a page, and its expected output: ```console, ```console nightly varies.

    What is ``nightly`` takes more than two seconds. Of what ``varies`` neither numbers are compared
    nor which kernel has a row: both depend on the drawn cases.
    """

    page: Path
    marks: str
    command: str
    shown: str

    def lost(self, printed):
        """The lines that are shown and not printed; a page may leave lines out, and use ``…``."""
        said = iter(printed.splitlines())
        return [
            line
            for line in self.shown.splitlines()
            if not any(map(self._like(line), said))
        ]

    def _like(self, line):
        drawn = r"^[a-z]\w*_\w+|\d[\d.,]*" if "varies" in self.marks else "$^"
        plain = lambda text: " ".join(re.sub(drawn, "0", text).split())  # noqa: E731
        pattern = re.compile(".*".join(map(re.escape, plain(line).split("…"))))
        return lambda said: pattern.fullmatch(plain(said))


def test_the_green_picture_shows_the_output(pytester, in_process, whole_profiles):
    said = CliRunner().invoke(main, ["init", "first"]).stdout
    said += str(in_process("--simulate", "first").stdout)

    def plain(text):
        return re.sub(r"\d[\d,.]*", "0", "".join(text.replace("=", "").split()))

    drawn = re.findall(
        r"<text[^>]*>(.*?)</text>", text_of(DOCS / "pictures" / "green.svg")
    )
    shown = html.unescape("".join(drawn))
    here = r"(platform|rootdir:|plugins:|=+ (test session|\d+ passed))"  # what only a computer says
    lines = [line for line in said.splitlines() if not re.match(here, line)]
    assert len(lines) > 10
    assert [line for line in lines if plain(line) not in plain(shown)] == [], (
        "make.py draws it"
    )


def sessions(nightly):
    """The blocks of commands that run every night, or with each change: lists of Sessions."""
    for page in (ROOT / "README.md", *READ):
        for language, marks, code in BLOCK.findall(text_of(page)):
            if language == "console" and ("nightly" in marks) is nightly:
                parts = re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]
                yield [
                    Session(page, marks, *COMMAND.fullmatch(part).groups())
                    for part in parts
                ]


def files_of(page, folder):
    """The files that a page's commands find in their folder."""
    if (FILES / page.stem).is_dir():
        shutil.copytree(FILES / page.stem, folder, dirs_exist_ok=True)
    for code in blocks(page):
        if name := FILE.match(code):
            (folder / name[1]).write_text(code, encoding="utf-8")


def printed(one, folder):
    """Return a command's output: in this process, or by the shell in a copy of the repository."""
    if "nightly" not in one.marks:
        result = CliRunner().invoke(main, shlex.split(one.command)[1:])
        assert result.exit_code in (0, 1), result.output
        return result.stdout
    for name in REPOSITORY:
        named = re.search(r"\b(kernels|tests)\b", one.command)
        if named and not (folder / name).exists():
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(
                ROOT / name, folder / name
            )
    return subprocess.run(
        one.command, shell=True, text=True, stdout=PIPE, stderr=STDOUT
    ).stdout


SESSIONS = [*sessions(nightly=False), *(sessions(nightly=True) if NIGHTLY else ())]


@pytest.mark.parametrize("block", SESSIONS, ids=lambda block: f"{block[0].page.stem}")
def test_commands_print_as_on_their_page(tmp_path, monkeypatch, block):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "104")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    # Of some seeds a case is inconclusive, and its kernel has a row of its own.
    monkeypatch.setenv("PYTEST_ADDOPTS", "--hypothesis-seed=0")
    files_of(block[0].page, tmp_path)
    for one in block:
        said = printed(one, tmp_path)
        assert one.lost(said) == [], said


@every(
    "marks, shown, printed, lost",
    [
        ("", "b\nd 7", "a\nb\nc\nd   7 ", 0),
        ("", "d 7", "d 8", 1),
        (" varies", "d 7.5 us", "d 1,038 us", 0),
        (" varies", "d 7 us", "e 7 us", 1),
        ("", "d … us", "d 1 or 2 us", 0),
        ("", "b\na", "a\nb", 1),
    ],
)
def test_the_output_on_a_page_is_compared(marks, shown, printed, lost):
    assert len(Session(INDEX, marks, "", shown).lost(printed)) == lost


def test_the_page_of_editors_shows_the_output_of_mypy(tmp_path, monkeypatch):
    page = DOCS / "how-to" / "editor.md"
    CliRunner().invoke(main, ["stubs", str(tmp_path)])
    for root in ("nki", "neuronxcc"):
        # as pip has them, for MYPYPATH
        (tmp_path / f"{root}-stubs").rename(tmp_path / root)
    write_untyped_numpy(tmp_path)
    (kernel,) = blocks(page)
    (tmp_path / "scaled.py").write_text(kernel, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(tmp_path))
    options = [
        "--config-file=",
        "--cache-dir=.cache",
        "--no-error-summary",
        "--no-pretty",
    ]
    said = said_by_mypy(*options, "--check-untyped-defs", "scaled.py")[0]
    errors = [line for line in said.splitlines() if " error: " in line]
    _, shown = blocks(page, "")
    assert errors == shown.splitlines()


def test_the_page_on_latency_shows_a_result_in_the_form_that_it_has():
    page = DOCS / "how-to" / "measure-latency.md"
    (shown,) = (code for code in blocks(page, "") if code.startswith("224x224"))
    (example,) = doctest.DocTestFinder().find(StageResult.lines, globs={})
    assert shown == example.examples[-1].want


@pytest.mark.parametrize("picture", ["failure", "green", "folders"])
def test_a_picture_needs_nothing_from_elsewhere(picture):
    drawn = text_of(DOCS / "pictures" / f"{picture}.svg")
    assert "url(http" not in drawn
    assert "@import" not in drawn


def test_each_line_of_the_next_changelog_has_a_type_and_is_one_line():
    settings = text_of(ROOT / "pyproject.toml")
    types = re.findall(
        r"\[\[tool\.towncrier\.type\]\]\ndirectory = \"(\w+)\"", settings
    )
    assert types == ["added", "changed", "removed"]
    wrong = [
        file.name
        for file in (ROOT / "changes").glob("*.md")
        if file.name.split(".")[-2] not in types or text_of(file).count("\n") != 1
    ]
    assert wrong == []
    assert "<!-- towncrier release notes start -->\n" in text_of(ROOT / "CHANGELOG.md")


def test_the_picture_of_the_folders_shows_their_imports():
    picture = text_of(DOCS / "pictures" / "folders.svg")
    graph = grimp.build_graph(
        "difftest", exclude_type_checking_imports=True, cache_dir=None
    )
    parts = {
        child.removeprefix("difftest."): sorted(
            part.rpartition(".")[2]
            for part in graph.find_children(child)
            if graph.find_children(part)
        )
        for child in graph.find_children("difftest")
        if graph.find_children(child)
    }
    for folder in parts:
        graph.squash_module(f"difftest.{folder}")
    imports = {
        f"{one} imports {other}"
        for one, other in permutations(parts, 2)
        if graph.direct_import_exists(
            importer=f"difftest.{one}", imported=f"difftest.{other}"
        )
    }
    assert len(parts) == 8
    assert set(re.findall(r"<title>(.*?)</title>", picture)) == imports, (
        "make.py draws it"
    )
    shown = re.findall(
        r'class="name"[^>]*>(\w+)/</text>\n<text[^>]*>(.*?)</text>', picture
    )
    assert {folder: text.split() for folder, text in shown} == {
        folder: inner or ["modules", "only"] for folder, inner in parts.items()
    }, "make.py draws it"
    text = text_of(DOCS / "contributing" / "architecture.md")
    listed = re.findall(
        r"^\| `(\w+)/` \|", text.partition("eight folders of difftest")[2], re.M
    )
    assert listed == [folder for folder, _ in shown]


def test_the_cases_on_the_page_of_arguments_are_of_its_spec():
    """Each row of drawn values: sizes that the domain has, shapes, bounds and dtypes."""
    page = DOCS / "reference" / "kernel-test.md"
    (code,) = blocks(page)
    exec(code, found := {})
    spec = kernel_test_of(found["test_gathers"]).spec
    rows = re.findall(
        r"^\| K=(\d+), H=(\d+), P=(\d+), (\w+) \| (.*) \|$", text_of(page), re.MULTILINE
    )
    assert len(rows) == 4
    for *sizes, dtype, cells in rows:
        values = dict(zip("KHP", map(int, sizes), strict=True))
        assert minimal_values(spec, values) == values
        case = minimal_case(spec, values, dtype)
        dtypes = {name: case.dtype_of(name) for name in (*spec.inputs, *spec.outputs)}
        dtypes["largest"] = spec.output_dtype[1]
        said = [f"{spec.shape(name, values)} {dtypes[name]}" for name in dtypes]
        assert (
            re.sub(r" Indices\(seed=\d+, below=(\d+)\)", "", cells).split(" | ") == said
        )
        assert f"below={values['H']})" in cells

"""The page of a document: read with html.parser as a browser would, and a screen reader."""

import itertools
import re
from html.parser import HTMLParser

import pytest

from difftest.report.markdown import MOST, markdown_text
from difftest.report.page import page_text

VOID = {"meta", "link", "br", "img", "hr", "input"}
PICTURE = {"slice": [1], "shape": [2, 2], "rows": ["..", ".7"], "wrong": 1, "title": "one wrong"}
FINDING = {
    "id": "race",
    "severity": "warning",
    "happened": "two wrote <at once>",
    "rule": "one writes",
    "remedy": "a barrier",
    "where": [{"why": "race", "file": "k.py", "line": 3, "lines": [[3, "write(x)"]]}],
}
FAILURE = {
    "kernel": "scale",
    "title": "disagrees with its reference",
    "rows": [["case", "n=2"], ["looks like", "all zero"], ["wrong", "1 of 2"]],
    "again": "pytest --case '<n=2>'",
    "findings": [],
    "where": [
        {"why": "dma_copy wrote it", "file": "k.py", "line": 2, "lines": [[1, "a"], [2, "b<c"]]}
    ],
    "outputs": [
        {
            "backend": "embedded",
            "output": 0,
            "of": "",
            "shape": [2, 2, 2],
            "dtype": "float32",
            "looks_like": "all zero",
            "maps": [PICTURE],
        }
    ],
    "nearest": "n=1, float32",
}
PERFORMANCE = {
    "kernel": "add",
    "case": "n=4",
    "totals": ["Predicted for trn2, not measured.", "nc_latency 17.9 us"],
    "microseconds": {"predicted": 4.0, "bound by arithmetic": 0.0, "bound by memory": 2.0},
    "intensity": 0.0,
    "ridge": 185.0,
    "limit": "memory",
    "busy": {},
    "timeline": '<svg role="img"><title>Predicted timeline</title></svg>',
    "colours": [("#0072b2", "loads & more")],
    "lines": [["k.py:3: add", 4, 1.0, 0.5, 4096]],
    "memory": "sbuf: 1 of 2",
    "advice": [],
}


def counts(kernel, cases=20):
    return {
        "kernel": kernel,
        "backend": "embedded",
        "cases": cases,
        "elements": 1234567,
        "nonfinite": 0,
        "exact": 3,
        "rejections": 1,
        "both_rejected": 0,
        "inconclusive": 0,
    }


def test_of(kernel, **more):
    details = {"failure": None, "hazards": [], "performance": []} | more.pop("details", {})
    return {
        "id": f"test_it.py::test_{kernel}",
        "outcome": "passed",
        "seconds": 1.0,
        "kernels": [kernel],
        "details": details,
        **more,
    }


test_of.__test__ = False


@pytest.fixture
def document():
    text = "E   <script>alert(1)</script> scale disagrees"
    return {
        "format": 3,
        "versions": {"nki-difftest": "0.2.0", "python": "3.13"},
        "backends": [{"name": "embedded", "description": "the embedded simulator"}],
        "kernels": [counts("add"), counts("scale")],
        "inconclusive": ["add: too vague"],
        "not_reached": [
            {
                "file": "k.py",
                "line": 7,
                "kernels": ("add",),
                "what": "never true",
                "source": "if n < 3:",
            }
        ],
        "tests": [
            test_of("add", details={"hazards": [FINDING, FINDING], "performance": [PERFORMANCE]}),
            test_of("scale", outcome="failed", failure=text, details={"failure": FAILURE}),
            {"id": "test_it.py::test_x", "outcome": "failed", "seconds": 0.1, "failure": "E x < 1"},
        ],
        "not_collected": ["test_other.py"],
        "exit_code": 1,
    }


class Reader(HTMLParser):
    """What a page has: its elements with their attributes, its text, and what does not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text, self.wrong = [], [], [], []
        self.feed(text)
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        self.text.append(data)

    def of(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def said(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture
def page(document):
    return Reader(page_text(document))


def test_each_element_is_closed(page):
    assert page.wrong == []
    assert Reader("<p><b></p>").wrong  # the reader can tell


def test_a_screen_reader_finds_its_way(page):
    assert [len(page.of(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    assert page.of("html")[0]["lang"] == "en"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [one["href"].removeprefix("#") for one in page.of("a")]
    labels = [one["aria-labelledby"] for one in page.of("section")]
    assert len(labels) == 4  # the summary, two kernels, other tests
    assert set(targets) | set(labels) <= set(ids)
    assert all("scope" in one for one in page.of("th"))
    pictures = [at for at, (tag, _) in enumerate(page.elements) if tag == "svg"]
    assert len(pictures) == 2
    assert all(page.elements[at + 1][0] == "title" for at in pictures)
    assert all(page.elements[at][1]["role"] == "img" for at in pictures)
    scrolled = [one for one in page.of("pre", "div", "figure") if "tabindex" in one]  # by keys
    assert all(one["tabindex"] == "0" and one["aria-label"] for one in scrolled)
    assert {one["role"] for one in scrolled} == {"region", "group"}  # a landmark has its own name
    wrapped = [one for one in page.of("pre") if "tabindex" not in one]
    assert [one["class"] for one in wrapped] == ["again"]
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


def test_nothing_comes_from_elsewhere(page, document):
    links = [
        value or ""
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data", "srcset", "poster")
    ]
    assert links
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert "url(" not in page_text(document)
    assert "@import" not in page_text(document)
    assert not page.of("script", "link", "iframe", "object")


def test_each_failure_is_there_as_text(page):
    for part in (
        *("disagrees with its reference", "Looks like: all zero", "wrong 1 of 2"),
        *("nearest that agrees n=1, float32", "pytest --case '<n=2>'", "2 b<c (this line)"),
        *("<script>alert(1)</script> scale disagrees", "test_it.py::test_x E x < 1"),
        *("slice [1, :, :]: 1 of 4 elements", "at least the largest expected value"),
    ):
        assert part in page.said, part


def test_what_ran_and_what_was_found_is_there(page):
    for part in (
        *("1 of 3 tests passed", "1,234,567", "never true", "if n < 3:", "too vague"),
        *("test_other.py", "two wrote <at once>", "a barrier", "nki-difftest 0.2.0"),
        *(
            "Predicted time of n=4",
            "no products to count, so memory is the limit",
            "2.00 us",
            "loads & more",
            "sbuf: 1 of 2",
        ),
    ):
        assert part in page.said, part
    assert page.said.count("two wrote") == 1  # once, though two tests saw it


def test_kernels_that_failed_come_first(page):
    titles = [one["id"] for one in page.of("section")]
    assert titles == ["summary", "scale", "add", "other-tests"]


def test_a_page_of_no_test(document):
    empty = {**document, "tests": [], "kernels": [], "not_reached": [], "exit_code": 5}
    page = Reader(page_text(empty))
    assert "No kernel test ran" in page.said
    assert page.wrong == []


def test_the_same_as_markdown(document):
    text = markdown_text(document)
    assert "1 of 3 tests passed, on the embedded simulator." in text
    assert "| ❌ | scale | embedded | 20 | 1,234,567 | 3 | 1 |" in text
    assert "| ✅ | add | embedded |" in text
    for part in ("looks like    all zero", "dma_copy wrote it: `k.py:2`", "   2 b<c", "E x < 1"):
        assert part in text, part
    assert text.count("~~~~") % 2 == 0


def test_markdown_has_an_end(document):
    failed = document["tests"][2]
    document["tests"] = [failed] * (MOST + 3)
    text = markdown_text(document)
    assert text.count("### ❌") == MOST
    assert "and 3 more failures" in text


def test_a_failure_cannot_end_its_fence(document):
    document["tests"][2]["failure"] = "before\n~~~~\n# after"
    lines = markdown_text(document).splitlines()
    inside = lines[lines.index("before") :]
    assert inside.index("# after") < inside.index("~~~~")

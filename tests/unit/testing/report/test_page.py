"""The page of a document: read with html.parser as a browser would, and a screen reader."""

import itertools
import re
from html.parser import HTMLParser

import pytest

from difftest.testing.report.page import MOST, markdown_text, page_text

OUTCOMES = ("failed", "passed")
VOID = {"meta", "link", "br", "img", "hr", "input"}
WORST = "1 at least the largest expected value"
PICTURE = {
    "slice": [1],
    "shape": [2, 2],
    "rows": ["..", ".7"],
    "wrong": 1,
    "title": "slice [1, :, :]: 1 of 4 elements (2 x 2) wrong",
    "block": [1, 1],
    "spoken": WORST,
}
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
    "saved": "saved/failure_it.py",
    "beside": ["k cannot be judged <here>"],
    "findings": [],
    "where": [
        {
            "why": "dma_copy wrote it",
            "file": "k.py",
            "line": 2,
            "lines": [[1, "a"], [2, "b<c"]],
        }
    ],
    "outputs": [
        {
            "backend": "embedded",
            "output": 0,
            "of": "",
            "case": "n=2, float32",
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
    "title": "n=4",
    "case": "n=4, x=Random(seed=7)",
    "stopped": "",
    "totals": ["Predicted for trn2, not measured.", "nc_latency 17.9 us"],
    "microseconds": {
        "predicted": 4.0,
        "bound by arithmetic": 0.0,
        "bound by memory": 2.0,
    },
    "intensity": 0.0,
    "ridge": 185.0,
    "limit": "memory",
    "end": 3.5,
    "lanes": [
        {
            "name": "vector",
            "value": "5% busy",
            "areas": [["#0072b2", "adds & more", "M0 0Z"]],
        },
        {"name": "DMA", "value": "idle", "areas": [["#d55e00", "never", ""]]},
    ],
    "lines": [["k.py:3: add", 4, 1.0, 0.5, 4096]],
    "memory": "sbuf: 1 of 2",
    "advice": [],
}
TWO = [PERFORMANCE, {**PERFORMANCE, "title": "n=5"}]


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
    details = {"failure": None, "hazards": [], "performance": []} | more.pop(
        "details", {}
    )
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
    said = "scale: wrong algorithm at n=2"
    return {
        "format": 3,
        "versions": {"nki-difftest": "0.2.0", "python": "3.13"},
        "backends": [{"name": "embedded", "description": "the embedded simulator"}],
        "kernels": [counts("add"), counts("scale")],
        "launches": [
            {"kernel": "rotate", "launches": 1234, "hazards": ["warning race: <two>"]}
        ],
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
            test_of("add", details={"hazards": [FINDING, FINDING], "performance": TWO}),
            test_of(
                "scale",
                outcome="failed",
                failure=text,
                message=said,
                details={"failure": FAILURE},
                also_wrong="1 other case (at the edges)",
            ),
            test_of(
                "scale",
                outcome="failed",
                failure="no more",
                message="told already",
                details={"failure": FAILURE | {"title": "said twice"}},
                same_as="test_it.py::test_scale",
            ),
            {
                "id": "test_it.py::test_x",
                "outcome": "failed",
                "seconds": 0.1,
                "failure": "E x < 1",
                "message": "x is large",
            },
        ],
        "not_collected": ["test_other.py"],
        "left_out": [
            {
                "backend": "sdk",
                "dialect": "nki",
                "kernels": ["kernels.nki.softmax.softmax_rows"],
                "tests": ["test_softmax.py::test_softmax_rows"],
                "reason": "the kernel is written for nki\n  found:  no package nki",
            }
        ],
        "exit_code": 1,
    }


class Reader(HTMLParser):
    """The contents of a page: elements with their attributes, text, and unclosed elements."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.elements = []
        self.text = []
        self.wrong = []
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
    assert [len(page.of(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [
        1
    ] * 5
    assert page.of("html")[0]["lang"] == "en"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [one["href"].removeprefix("#") for one in page.of("a")]
    labels = [one["aria-labelledby"] for one in page.of("section")]
    assert len(labels) == 4  # the summary, two kernels, other tests
    assert set(targets) | set(labels) <= set(ids)
    assert all("scope" in one for one in page.of("th"))
    pictures = [at for at, (tag, _) in enumerate(page.elements) if tag == "svg"]
    assert len(pictures) == 3
    assert all(page.elements[at + 1][0] == "title" for at in pictures)
    assert all(page.elements[at][1]["role"] == "img" for at in pictures)
    # by keys
    scrolled = [one for one in page.of("pre", "div", "figure") if "tabindex" in one]
    assert all(one["tabindex"] == "0" and one["aria-label"] for one in scrolled)
    assert {one["role"] for one in scrolled} == {"region", "group"}
    landmarks = [one["aria-label"] for one in scrolled if one["role"] == "region"]
    # two cases of a kernel have two timelines
    assert len(set(landmarks)) == len(landmarks)
    wrapped = [one for one in page.of("pre") if "tabindex" not in one]
    assert [one["class"] for one in wrapped] == ["again", "again"]
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
    assert page.of("script") == [{}]
    assert not page.of("link", "iframe", "object")


def test_each_failure_is_there_as_text(page):
    for part in (
        "disagrees with its reference",
        "Looks like: all zero",
        "wrong 1 of 2",
        "nearest that agrees n=1, float32",
        "pytest --case '<n=2>'",
        "2 b<c (this line)",
        "<script>alert(1)</script> scale disagrees",
        "test_it.py::test_x E x < 1",
        "slice [1, :, :]: 1 of 4 elements",
        WORST,
        "difftest replay saved/failure_it.py",
        "x is large",
        "also wrong 1 other case (at the edges)",
    ):
        assert part in page.said, part
    assert "said twice" not in page.said  # one bug, one report
    # in the head, and above its report
    assert page.said.count("scale: wrong algorithm at n=2") == 2


def test_the_page_has_the_tests_and_their_findings(page, document):
    for part in (
        "1 of 4 tests passed",
        "1,234,567",
        "never true",
        "if n < 3:",
        "too vague",
        "test_other.py",
        "kernels.nki.softmax.softmax_rows",
        "found: no package nki",
        "two wrote <at once>",
        "a barrier",
        "nki-difftest 0.2.0",
        "Predicted time of n=4",
        "no products to count, so memory is the limit",
        "2.00 us",
        "adds & more",
        "sbuf: 1 of 2",
    ):
        assert part in page.said, part
    assert page.said.count("two wrote") == 1  # once, though two tests saw it
    assert (
        "Predicted timeline of 3.5 microseconds: vector 5% busy; DMA idle" in page.said
    )
    assert "never" not in page.said.partition("SBUF")[0].rpartition("Timeline")[2]
    headings = re.findall("<h[1-6][^>]*>(.*?)</h", page_text(document), re.DOTALL)
    assert not any("seed" in one for one in headings)


def test_kernels_can_be_filtered(page):
    """By outcome, and by the words that a person knows: of a kernel, its tests, its messages."""
    known = [one for one in page.of("section", "li", "tr") if "data-outcome" in one]
    assert [one["data-outcome"] for one in known].count("failed") == 5
    scale, add = (one for one in known if one.get("id") in ("scale", "add"))
    assert "wrong algorithm" in scale["data-text"]
    assert add["data-text"] == "add test_it.py::test_add"
    assert [one["value"] for one in page.of("input") if one["type"] == "radio"] == [
        "",
        *OUTCOMES,
    ]
    assert {one["data-outcome"] for one in known} == set(OUTCOMES)


def test_kernels_that_failed_come_first(page):
    titles = [one["id"] for one in page.of("section")]
    assert titles == ["summary", "scale", "add", "other-tests"]


def test_a_page_of_no_test(document):
    empty = {**document, "tests": [], "kernels": [], "not_reached": [], "exit_code": 5}
    assert "No kernel test ran" not in Reader(page_text(empty)).said
    empty["launches"] = []
    page = Reader(page_text(empty))
    assert "No kernel test ran" in page.said
    assert page.wrong == []


def test_launches_without_a_reference_are_a_table(page, document):
    assert "rotate 1,234 1" in page.said
    assert "warning race: <two>" in page.said
    assert "| rotate | 1,234 | 1 |" in markdown_text(document)


def test_the_same_as_markdown(document):
    text = markdown_text(document)
    assert "1 of 4 tests passed, on the embedded simulator." in text
    assert "### ❌ scale: wrong algorithm at n=2" in text
    assert "told already" not in text
    assert "| ❌ | scale | embedded | 20 | 1,234,567 | 3 | 1 |" in text
    assert "| ✅ | add | embedded |" in text
    for part in (
        "looks like:  all zero",
        "dma_copy wrote it: `k.py:2`",
        "   2 b<c",
        "E x < 1",
    ):
        assert part in text, part
    assert text.count("~~~~") % 2 == 0


def test_markdown_has_an_end(document):
    failed = document["tests"][3]
    document["tests"] = [failed] * (MOST + 3)
    text = markdown_text(document)
    assert text.count("### ❌") == MOST
    assert "and 3 more failures" in text


def test_a_failure_cannot_end_its_fence(document):
    document["tests"][3]["failure"] = "before\n~~~~\n# after"
    lines = markdown_text(document).splitlines()
    inside = lines[lines.index("before") :]
    assert inside.index("# after") < inside.index("~~~~")

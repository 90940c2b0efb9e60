"""Fixes: each repairs its rule's page and other forms, and leaves unsupported forms unchanged."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from difftest.simulator import NkiError
from difftest.tools.lint.check import lint_source, rules
from difftest.tools.lint.files import LintRequest
from difftest.tools.lint.fixes import _FIXERS
from difftest.tools.lint.formats import FORMATS, format_summary
from difftest.tools.lint.rule import SDKS
from difftest.tools.lint.source import Source, applied
from tests.every import every
from tests.unit.tools.lint.test_pages import launched, sdk_of, snippets


def fixed(text: str, id: str, sdk: str) -> tuple[str, bool]:
    """Return a file after all fixes of a rule, and whether all of them were safe."""
    source = Source(Path("kernel.py"), text)
    asked = {id, *re.findall(r"NK\w\d{3}", text)}
    fixes = [one.fix for one in lint_source(source, SDKS[sdk], None, asked) if one.fix]
    return applied(text, fixes)[0], all(one.is_safe for one in fixes)


@every("id", [id for id in _FIXERS if id != "NKU301"])
def test_the_fixed_kernel_of_each_page_computes_the_same_values(
    id: str, tmp_path: Path
) -> None:
    rule = rules()[id]
    wrong = next(text for text in snippets(rule) if "# ruleid:" in text)
    wrong = re.sub(r" *# ruleid: \w+", "", wrong)
    sdk = sdk_of(rule.page, {id}, Source(Path("kernel.py"), wrong))
    mended, _ = fixed(wrong, id, sdk.version)
    assert mended != wrong
    assert lint_source(Source(Path("kernel.py"), mended), sdk) == []
    after = launched(mended, rule, tmp_path, 1).outputs[0]
    warnings.simplefilter("ignore", UserWarning)  # about the code before the fix
    try:
        before = launched(wrong, rule, tmp_path, 0).outputs[0]
    except NkiError:
        return
    np.testing.assert_array_equal(after, before)


HEAD = """import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
import nki.collectives as ncc


@nki.jit
def kernel(x):
{}
    return x
"""
BODIES = [
    # id, SDK, the code before, the code after, whether the fix is safe
    (
        "NKL101",
        "2.32",
        "    t = [f(i) for i in range(2) if i]",
        "    t = []\n    for i in range(2):\n        if i:\n            t.append(f(i))",
        True,
    ),
    (
        "NKL101",
        "2.32",
        "    t = [i for i in a]\n    g(i)",
        "    t = []\n    for i in a:\n        t.append(i)\n    g(i)",
        False,
    ),
    (
        "NKL103",
        "2.32",
        "    for i, t in enumerate(ts):\n        f(i, t)",
        "    for i in range(len(ts)):\n        t = ts[i]\n        f(i, t)",
        False,
    ),
    (
        "NKL103",
        "2.32",
        "    s = [1]\n    for i, t in enumerate(s):\n        # 2\n        f(i)",
        "    s = [1]\n    for i in range(len(s)):\n        # 2\n        t = s[i]\n        f(i)",
        True,
    ),
    ("NKL106", "2.32", "    a = x is not y", "    a = x != y", False),
    (
        "NKL109",
        "2.32",
        "    nisa.iota(d, dtype=np.int32)",
        "    nisa.iota(d, dtype=nl.int32)",
        True,
    ),
    ("NKL110", "2.32", "    f(buffer='psum')", "    f(buffer=nl.psum)", True),
    (
        "NKL111",
        "2.32",
        "    nisa.dma_copy(x, x, dge_mode=2)",
        "    nisa.dma_copy(x, x, dge_mode=nisa.dge_mode.hwdge)",
        True,
    ),
    (
        "NKU303",
        "2.29",
        "    f(nl.tile_size.sbuf_size_bytes)",
        "    f(nl.tile_size.total_available_sbuf_size)",
        True,
    ),
    (
        "NKU304",
        "2.33",
        "    nisa.register_move(r, imm=3)",
        "    nisa.register_move(r, src=3)",
        True,
    ),
    (
        "NKU304",
        "2.33",
        "    nisa.sendrecv(a, b, use_gpsimd_dma=True)",
        "    nisa.sendrecv(a, b, dma_engine=nisa.dma_engine.gpsimd_dma)",
        True,
    ),
    (
        "NKU304",
        "2.33",
        "    nisa.dma_copy(x, x, unique_indices=True)",
        "    nisa.dma_copy(x, x)",
        True,
    ),
    (
        "NKU304",
        "2.29",
        "    nisa.dma_copy(dst=x, priority=1, src=x)",
        "    nisa.dma_copy(dst=x, src=x)",
        True,
    ),
    (
        "NKU302",
        "2.29",
        "    nl.ndarray((nl.par_dim(p // 2), 4), x.dtype, nl.sbuf)",
        "    nl.ndarray((p // 2, 4), x.dtype, nl.sbuf)",
        True,
    ),
    (
        "NKX001",
        "2.33",
        "    a = 1  # difftest: ignore[NKU302, NKL109] old",
        "    a = 1",
        True,
    ),
    (
        "NKX001",
        "2.33",
        "    ä = 'ö'; a = 1  # difftest: ignore[NKU302] old",
        "    ä = 'ö'; a = 1",
        True,
    ),
]


@every("body", BODIES)
def test_a_fix_writes_the_expected_code(body: tuple[str, str, str, str, bool]) -> None:
    id, sdk, wrong, right, is_safe = body
    request = LintRequest(sdk=SDKS[sdk], ids={id, *re.findall(r"NK\w\d{3}", wrong)})
    text = HEAD.format(wrong)
    assert fixed(text, id, sdk)[1] is is_safe
    assert request._fixed(Path("kernel.py"), text, unsafe=True) == HEAD.format(right)
    safely = request._fixed(Path("kernel.py"), text, unsafe=False)
    assert safely == (HEAD.format(right) if is_safe else text)


LEFT = [
    ("NKL103", "2.32", "    for i, t in zip(a, b):\n        f(i, t)"),
    ("NKL103", "2.32", "    for i, t in enumerate(ts): f(i, t)"),
    ("NKL101", "2.32", "    f([i for i in a])"),  # no statement of its own
    ("NKL101", "2.32", "    t = [i + j for i in a for j in b]"),
    ("NKL101", "2.32", "    t = [t for t in t]"),
    ("NKL101", "2.32", "    if x: t = [i for i in a]"),
    ("NKL109", "2.32", "    nisa.iota(d, dtype=np.longdouble)"),
    ("NKL110", "2.32", "    f(buffer='cache')"),
    ("NKL111", "2.32", "    nisa.dma_copy(x, x, dge_mode=99)"),
    ("NKU302", "2.29", "    nl.ndarray((4, nl.par_dim(8), 4), x.dtype, nl.sbuf)"),
    ("NKU303", "2.29", "    f(nl.int64)"),
    ("NKU304", "2.33", "    nisa.sendrecv(a, b, use_gpsimd_dma=flag)"),
]


@every("body", LEFT)
def test_code_that_only_a_person_can_fix_is_left(body: tuple[str, str, str]) -> None:
    id, sdk, wrong = body
    found = lint_source(
        Source(Path("kernel.py"), HEAD.format(wrong)), SDKS[sdk], None, {id}
    )
    assert [one.id for one in found] == [id]
    assert [one.fix for one in found] == [None]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def kernel(x, *, flag=True):", "def kernel(x, flag=True):"),
        ("def kernel(*, flag):", None),
        (
            "def kernel(x=(1, 2), *, flag=True, y=1):",
            "def kernel(x=(1, 2), flag=True, y=1):",
        ),
        ("def kernel(*x, flag=True):", None),
    ],
)
def test_the_fix_of_keyword_only_parameters_drops_the_star(
    before: str, after: str | None
) -> None:
    text = HEAD.format("    pass").replace("def kernel(x):", before)
    assert fixed(text, "NKL102", "2.32")[0] == text.replace(before, after or before)


@pytest.mark.parametrize(
    ("before", "after", "is_safe"),
    [
        ("@nki.jit(mode='torchxla')", "@nki.jit", True),
        ("@nki.jit(platform_target='trn2')", "@nki.jit", False),
        (
            "run = nki.jit(id, mode='jax')\n\n\n@nki.jit",
            "run = nki.jit(id)\n\n\n@nki.jit",
            True,
        ),
        ("@nki.jit(mode='jax', debug=True)", "@nki.jit(debug=True)", True),
        ("@nki.jit(debug=True, mode='jax',)", "@nki.jit(debug=True,)", True),
    ],
)
def test_the_fix_of_jit_removes_an_ended_argument(
    before: str, after: str, is_safe: bool
) -> None:
    text = HEAD.format("    pass").replace("@nki.jit", before)
    id = "NKL113" if "platform_target" in before else "NKL115"
    assert fixed(text, id, "2.32") == (text.replace(before, after), is_safe)


CLASSIC = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # The comment stays.
    tile = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32)
    {}
    return out
"""


@pytest.mark.parametrize(
    ("line", "is_safe"),
    [
        ("nl.store(out, nl.load(x))", True),
        ("nl.store(out, nl.load(x), mask=x.shape[0] % 2 == 0)", False),
    ],
)
def test_a_classic_file_is_rewritten_as_migrate_does_or_not_at_all(
    line: str, is_safe: bool
) -> None:
    from difftest.tools.migration.rewriting import migrate_source

    text = CLASSIC.format(line)
    request = LintRequest(sdk=SDKS["2.33"])
    assert request._fixed(Path("k.py"), text, unsafe=True) == migrate_source(text).text
    safely = request._fixed(Path("k.py"), text, unsafe=False)
    assert safely == (migrate_source(text).text if is_safe else text)
    found = lint_source(Source(Path("k.py"), text), SDKS["2.33"])
    assert {one.id for one in found if one.fix} == {"NKU301"}


def test_a_file_is_rewritten_once_and_only_at_requested_fixes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JSON, SARIF and GitHub annotations only contain fixes of single places."""
    from difftest.tools.migration import rewriting

    calls: list[str] = []
    whole = rewriting.migrate_source

    def counted(text: str) -> object:
        calls.append(text)
        return whole(text)

    monkeypatch.setattr(rewriting, "migrate_source", counted)
    text = CLASSIC.format("nl.store(out, nl.load(x))")
    request = LintRequest(sdk=SDKS["2.33"])
    told: dict[str, int] = {}
    for form, write in FORMATS.items():
        calls.clear()
        found = request.of_source(Source(Path("k.py"), text))
        written = write(found, request.levels)
        if form == "text":
            assert "1 fixable with --fix" in format_summary(found, request.levels)
            assert "NKU301 [*]" in written
        told[form] = len(calls)
    assert len(found) > 1
    assert told == {"text": 1, "json": 0, "sarif": 0, "github": 0}
    calls.clear()
    assert request._fixed(Path("k.py"), text, unsafe=False) == whole(text).text
    assert calls == [text]


def test_fixes_that_meet_wait_for_each_other() -> None:
    source = Source(Path("k.py"), "a = f(1)\n")
    from difftest.tools.lint.source import Fix

    one = Fix("", (source.edit(4, 8, "g(1)"),))
    other = Fix("", (source.edit(6, 7, "2"),))
    assert applied(source.text, [one, other]) == ("a = g(1)\n", 1)
    assert applied(source.text, [other, one]) == ("a = f(2)\n", 1)


def test_places_are_counted_in_characters() -> None:
    source = Source(Path("k.py"), "é = 'ü'; b = 1\r\nç = 2\n")
    *_, second, third = source.tree.body
    assert source.region(*source.span(second)) == (1, 10, 1, 15)
    assert source.segment(second) == "b = 1"
    assert source.segment(third) == "ç = 2"
    assert source.region(*source.span(third)) == (2, 1, 2, 6)

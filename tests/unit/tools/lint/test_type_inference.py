"""Detection of kernels and inference of their types, on wrong and right kernels."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

from difftest.tools.lint.check import lint_source, rules
from difftest.tools.lint.files import Level, Levels, LintRequest
from difftest.tools.lint.rule import LAST_CLASSIC, SDKS
from difftest.tools.lint.source import Source
from tests.every import every

ROOT = Path(__file__).parents[4]
HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
from neuronxcc.nki.language.constants import sizeinbytes
from neuronxcc.starfish.support.util import div_ceil
"""
BODY = """out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
tile = nl.load(x)
{}
return out, y"""
GRID = "i, j = nl.mgrid[0:128, 0:64]\n"
ROWS = "rows = nisa.iota(nl.arange(128)[:, None], dtype=nl.uint32)\n"
PLACED = "a = nl.ndarray((128, 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))\n"
PAIRS = {
    "NKT201 of a mask that has a name": (
        GRID + "mask = (i < 9) and (j < 9)\nnl.store(out[i, j], tile, mask=mask)",
        GRID + "mask = (i < 9) & (j < 9)\nnl.store(out[i, j], tile, mask=mask)",
    ),
    "NKT201 of a tile": ("a = not (tile > 0)", "a = ~(tile > 0)"),
    "NKT201 in nl.where": (
        "a = nl.where((tile > 0) and (tile < 9), tile, 0)",
        "a = nl.where((tile > 0) & (tile < 9), tile, 0)",
    ),
    "NKT201 of two comparisons in one": (
        GRID + "nl.store(out[i, j], tile, mask=0 < i < 9)",
        GRID + "nl.store(out[i, j], tile, mask=(0 < i) & (0 < x.shape[0] < 9))",
    ),
    "NKT201 beside numbers": (
        GRID + "nl.store(out[i, j], tile, mask=(i < 9) or x.shape[0] > 3)",
        "nl.store(out, tile, mask=x.shape[0] % 2 == 0 and x.shape[1] > 3)",
    ),
    "NKT202 of a tensor that is bound anew": (
        "for i in nl.sequential_range(2):\n    tile = nl.add(tile, tile)\nnl.store(out, tile)",
        "for i in nl.sequential_range(2):\n    tile[...] = nl.add(tile, tile)\nnl.store(out, tile)",
    ),
    "NKT202 below a condition": (
        "if nl.program_id(0) < 1:\n    a = nl.exp(tile)\nnl.store(out, a)",
        "if config.training:\n    a = nl.exp(tile)\nelse:\n    a = tile\nnl.store(out, a)",
    ),
    "NKT202 of a sum over a loop": (
        "for i in nl.affine_range(2):\n    a = nl.exp(tile)\nnl.store(out, a)",
        "for i in nl.affine_range(2):\n    a = nl.loop_reduce(tile, nl.add, [i])\nnl.store(out, a)",
    ),
    "NKT206 of a load": (
        "a: nt.tensor[128, 512] = nl.load(x[0:128, 0:64])",
        "a: nt.tensor[128, 512] = nl.load(x[0:256:2, 0:512])\n"
        "b: nt.tensor[128, 512] = nl.load(x[0, 0:128, 0:512])",
    ),
    "NKT203 below a condition": (
        "for i in range(2):\n    a = nl.ndarray((2, 2), x.dtype, buffer=nl.shared_hbm)",
        "if x is None:\n    a = nl.ndarray((2, 2), x.dtype, buffer=nl.shared_hbm)",
    ),
    "NKT204 at one return": ("if config:\n    return out", "if config:\n    return y, out"),
    "NKT207 of what a line above made": (
        "peak = nl.max(tile, axis=1)\na = 1 if peak > 1 else 2",
        "peak = tile.shape[1]\na = 1 if peak > 1 else 2",
    ),
    "NKT207 of an index": (
        "i = nl.arange(64)[None, :]\nj = 3 * 64 + i\nif j > 9:\n    pass",
        "j = 3 * 64\nif j > 9:\n    pass",
    ),
    "NKT207 of what may be none": ("if tile:\n    pass", "if tile is not None:\n    pass"),
    "NKT207 of a comparison with None": ("if tile > 0:\n    pass", "if tile != None:\n    pass"),
    "NKT207 of a number that NKI returns": (
        "n = nl.sum(tile, axis=1)\nif n > 0:\n    pass",
        "n = nl.constants.sizeinbytes(x.dtype)\nif n > 0:\n    pass",
    ),
    "NKT207 of a function imported from NKI's inside": (
        "n = nl.copy(tile)\na = 1 if n else 2",
        "n = sizeinbytes(x.dtype)\nm = div_ceil(n, 2)\na = 1 if n > m > 0 else 2",
    ),
    "NKT207 of a method that returns no tile": (
        "n = tile.reshape((64, 128))\nif n:\n    pass",
        "n = tile.count()\nif n > 0:\n    pass",
    ),
    "NKT210 of nl.exp": (PLACED + "a[...] = nl.exp(tile)", "a = nl.exp(tile)"),
    "NKT211 with its engine": (
        PLACED + "a = nisa.nc_transpose(a, engine=nisa.tensor_engine)",
        PLACED + "a = nisa.nc_transpose(a, engine=nisa.vector_engine)",
    ),
    "NKT212 through a name": (
        "place = ncc.sbuf.mod_alloc(base_addr=0)\na = nl.zeros((128, 64), x.dtype, buffer=place)",
        "place = nl.sbuf\na = nl.zeros((128, 64), x.dtype, buffer=place)",
    ),
    "NKT213 of nl.mgrid": (
        GRID + ROWS + "a = nl.load(x[rows[i, 0], j])",
        ROWS + "j = nl.arange(64)[None, :]\na = nl.load(x[rows, j])",
    ),
    "NKT213 behind an index of partitions": (
        ROWS + "i = nl.arange(64)[:, None]\na = nl.load(x[i, rows[i, 0]])",
        ROWS + "i = nl.arange(64)[:, None]\nj = nl.arange(64)[None, :]\n"
        "for b in nl.affine_range(2):\n    a = nl.load(x[b, rows[i, 0], j])",
    ),
    "NKT213 of a store": (
        ROWS + "nl.store(out[0:64, rows], tile)",
        ROWS + "for b in nl.affine_range(2):\n    nl.store(out[b, rows, 0:64], tile)",
    ),
    "NKT213 of a block's last dimension": (
        ROWS + "for b in nl.affine_range(2):\n    a = nl.load(x[b, 0:64, rows])",
        ROWS + "for b in nl.affine_range(2):\n    a = nl.load(x[b, rows])",
    ),
    "NKT214 of a target in a tuple": (
        "x[0:64], a = tile, tile",
        "tile[0:64], a = tile[64:128], tile",
    ),
    "NKT214 of a part": (
        "nl.store(x[0:64], tile[0:64])",
        "nl.store(y, tile)\nx = nl.load(x)",
    ),
    "NKT214 of a second name": ("z = x\nnl.store(z, tile)", "z = y\nnl.store(z, tile)\nx = z"),
    "NKT214 of an assignment": ("x[...] = tile", "tile[0:3] = tile"),
    "NKT215 that an axis mends": (
        "i = nl.arange(64)\na = tile[i, 0]",
        "i = nl.arange(64)\ni = i[:, None]\na = tile[i, 0]",
    ),
    "NKT216 of loaded rows": (
        "a = nl.load_transpose2d(x[nl.load(y)])",
        "a = nl.load_transpose2d(x[0:64])",
    ),
    "NKH401 of the host's list": (
        "for i in nl.affine_range(2):\n    tile[0:64] = nl.exp(x)",
        "every = {}\nfor i in nl.affine_range(2):\n    every[0] = nl.exp(tile)",
    ),
    "NKH401 of a sum over a loop": (
        "for i in nl.affine_range(2):\n    tile[...] = nl.exp(tile)",
        "for i in nl.affine_range(2):\n    tile[...] = nl.loop_reduce(tile, nl.add, [i])",
    ),
    "NKH401 of a write that is masked": (
        "i_p = nl.arange(128)[:, None]\nfor i in nl.affine_range(2):\n"
        "    nl.store(out[0:64], tile[0:64], mask=i_p < 9)",
        "for i in nl.affine_range(2):\n    nl.store(out[0:64], tile[0:64], mask=i == 1)",
    ),
    "NKH401 of an assignment that is masked": (
        "for i in nl.affine_range(2):\n    tile[0:64] = nl.exp(tile[0:64])",
        "for i in nl.affine_range(2):\n    tile[0:64] = nl.exp(tile[0:64], mask=i < 1)",
    ),
    "NKH401 below a condition": (
        "for i in nl.affine_range(2):\n    if x.shape[0] > 3:\n        tile[0:64] = nl.exp(x)",
        "for i in nl.affine_range(2):\n    if i == 1:\n        tile[0:64] = nl.exp(x)",
    ),
    "NKH401 of one iteration": (
        "for i in nl.affine_range(2):\n    tile[0:64] = nl.exp(x)",
        "for i in nl.affine_range(1):\n    tile[0:64] = nl.exp(x)",
    ),
    "NKH401 of an index that a helper fills": (
        ROWS + "for i in nl.affine_range(2):\n    nl.store(out[rows], tile)",
        ROWS + "for i in nl.affine_range(2):\n    fill(rows, i)\n    nl.store(out[rows], tile)",
    ),
    "NKH401 of an index that the loop writes": (
        ROWS + "for i in nl.affine_range(2):\n    nl.store(out[rows[0:64]], tile)",
        ROWS + "for i in nl.affine_range(2):\n    nisa.dma_copy(dst=rows, src=y[i])\n"
        "    nl.store(out[rows[0:64]], tile)",
    ),
    "NKH401 of a target in a tuple": (
        "for i in nl.affine_range(2):\n    tile[0:64], a = nl.exp(x), 3",
        "for i in nl.affine_range(2):\n    tile[i], a = nl.exp(x), 3",
    ),
    "NKH402 where nothing unrolls": (
        "c = 0\nfor i in nl.affine_range(2):\n    a = nl.load(x[:, c : c + 9])\n    c += 9",
        "c = 0\nfor i in nl.static_range(2):\n    a = nl.load(x[:, c : c + 9])\n    c += 9",
    ),
    "NKH402 of an address": (
        "c = 0\nfor i in nl.affine_range(2):\n    a = nl.exp(tile[:, c])\n    c = c + 9",
        "c = 0\nfor i in nl.affine_range(2):\n    a = nl.ndarray((128, 9), x.dtype, "
        "buffer=ncc.sbuf.mod_alloc(base_addr=c))\n    c = c + 9",
    ),
}  # fmt: skip


def broken(text: str, sdk: str = LAST_CLASSIC.version) -> set[str]:
    return {one.id for one in lint_source(Source(Path("kernel.py"), text), SDKS[sdk])}


def kernel(body: str) -> str:
    function = "@nki.jit\ndef kernel(x, y: nt.mutable_tensor, config=None):\n"
    return HEAD + function + indent(BODY.format(body), "    ") + "\n"


@every("name", PAIRS)
def test_the_wrong_form_is_reported_and_the_nearest_right_form_is_not(
    name: str,
) -> None:
    id = name.partition(" ")[0]
    wrong, right = map(kernel, PAIRS[name])
    assert id in broken(wrong)
    assert broken(right) == set()


TODAY = """import nki
import nki.isa as nisa
import nki.language as nl


def check(x):
    {}


@nki.jit
def kernel(x):
    {}
    check(x)
    return x
"""
LANGUAGE = {
    "NKL105 of an item among targets": (
        ("pass", "a[0], b = 1, 2"),
        ("pass", "a, b = 1, 2"),
    ),
    "NKL105 of an attribute among targets": (
        ("pass", "[x.a, b] = 1, 2"),
        ("pass", "x.a = 1"),
    ),
    "NKL105 of an item inside of two tuples": (
        ("pass", "c, (a[0], *b) = 1, (2, 3)"),
        ("pass", "a[0] = 1"),
    ),
    "NKL105 of a called function's items": (
        ("a[0], b = x", "pass"),
        ("a[0] = b = x", "pass"),
    ),
    "NKL105 of raise": (("pass", "raise ValueError(3)"), ("pass", "assert x")),
    "NKL105 of raise in a called function": (
        ("if x: raise ValueError(3)", "pass"),
        ("assert x, 3", "pass"),
    ),
    "NKL104 of a loop's body that is also called": (
        ("pass", "def body(i): pass\n    nl.fori_loop(0, 2, body)\n    body(3)"),
        ("pass", "def body(i): pass\n    nl.fori_loop(0, 2, body)"),
    ),
    "NKL104 of an inner function of a called one": (
        ("def inner(y): return y\n    inner(x)", "pass"),
        ("nl.fori_loop(0, 2, lambda i: None)", "pass"),
    ),
}


@every("name", LANGUAGE)
def test_the_parser_accepts_the_python_of_awss_guides(name: str) -> None:
    id = name.partition(" ")[0]
    wrong, right = (TODAY.format(*bodies) for bodies in LANGUAGE[name])
    for sdk in ("2.29", "2.32"):
        assert id in broken(wrong, sdk)
    assert id not in broken(right, "2.32")
    assert Levels({}, True, True).of(rules()[id]) is Level.WARN
    assert {"NKL104", "NKL105"}.isdisjoint(broken(wrong, "2.33"))


def test_the_host_may_raise_and_unpack() -> None:
    host = "\n\ndef host(x):\n    x[0], y = 1, 2\n    raise ValueError(kernel(x))\n"
    assert broken(TODAY.format("pass", "pass") + host, "2.32") == set()


WRONG = "    tile = nl.load(x)\n    if tile:\n        pass\n    return x\n"
DEEPER = indent(WRONG, "    ")
PLACES = {
    "below a condition": f"if True:\n    @nki.jit\n    def k(x):\n{DEEPER}",
    "in try": f"try:\n    @nki.jit\n    def k(x):\n{DEEPER}except ValueError:\n    pass",
    "in a factory": f"def make():\n    @nki.jit\n    def k(x):\n{DEEPER}    return k",
    "in a class": f"class C:\n    @nki.jit\n    def k(self, x):\n{DEEPER}",
    "by its method": f"class C:\n    @nki.jit\n    def k(self, x):\n        return self.h(x)\n"
    f"    def h(self, x):\n{DEEPER}",
    "decorated by a part": f"@partial(nki.jit, mode='jax')\ndef k(x):\n{WRONG}",
    "launched with a grid": f"def k(x):\n{WRONG}\n\ndef host(x):\n    return k[2](x)",
    "launched by a call": f"def k(x):\n{WRONG}\n\nrun = nki.benchmark(warmup=5)(k)",
    "called by a kernel": f"def h(x):\n{WRONG}\n\n@nki.jit\ndef k(x):\n    return h(x)",
}


@every("place", PLACES)
def test_a_kernel_is_read_at_every_place_of_a_file(place: str) -> None:
    assert "NKT207" in broken(HEAD + PLACES[place])


@every(
    "host",
    [
        "def run(x):\n    return k[nl.nc(2)](x)",
        "def test():\n    [i for i in (1, 2)]\n    @nki.jit\n    def own(x):\n        return x",
        "def main():\n    nki.simulate_kernel(k, nl.nc(2))\n    assert [i for i in range(2)]",
        "if True:\n    def helper(x):\n        return nl.zeros((128, 2), x.dtype)",
        "def make(n):\n    a = nl.zeros((n, n), nl.float32)\n    [i for i in a]\n"
        "    def run(x):\n        return k[n](x)\n    return run",
        "def make(n):\n    a = nl.zeros((n, n), nl.float32)\n    [i for i in a]\n"
        "    @nki.jit\n    def own(x):\n        return x\n"
        "    return lambda x: own[n](x)",
        "def make(n):\n    a = nl.zeros((n, n), nl.float32)\n    [i for i in a]\n"
        "    return lambda x: nki.benchmark(k)(x)",
    ],
)
def test_the_host_is_no_kernel(host: str) -> None:
    text = HEAD + "\n@nki.jit\ndef k(x):\n    return x\n\n" + host
    assert broken(text) <= {"NKU301"}
    assert not {one for one in broken(text, "2.32") if one.startswith("NKL")}


@pytest.mark.parametrize(
    "call", ["nl.add(1, 2)", "nisa.iota(0, nl.int32)", "nl.zeros((1, 1))"]
)
def test_an_instruction_of_the_module_is_reported(call: str) -> None:
    assert "NKT208" in broken(f"{HEAD}if __name__ == '__main__':\n    {call}\n")
    assert broken(f"{HEAD}GRID = nl.nc(2)\n") == set()
    assert (
        broken(f"{HEAD}SIZE = sizeinbytes(nl.float32) + nl.constants.sizeinbytes(1)\n")
        == set()
    )


@pytest.mark.parametrize("sdk", ["2.29", "2.30", "2.31", "2.32", "2.33"])
def test_own_kernels_are_for_each_sdk_of_their_dialect(sdk: str) -> None:
    [readme] = re.findall(
        r"```python\n(import nki\n.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    first = (ROOT / "difftest/cli/first/scale.py.txt").read_text()
    assert broken(readme, sdk) | broken(first, sdk) == set()
    assert LintRequest(sdk=SDKS[sdk]).of_files([ROOT / "kernels/nki"]) == ([], [])


def test_an_argument_that_a_classic_page_lacks_is_a_warning() -> None:
    text = kernel("nl.store(out, nl.load(x, lazy=True))\nnisa.tensor_scalar_cumulative")
    [found] = lint_source(Source(Path("kernel.py"), text), LAST_CLASSIC)
    assert (found.id, Levels({}, True, True).of(found.rule)) == ("NKU308", Level.WARN)
    assert broken("import neuronxcc.nki as nki\nlanguage = nki.language\n") == set()


@every(
    "annotation",
    [
        "nt.tensor[nt.mutable]",
        "nt.tensor[128, 64, nt.mutable]",
        "nt.mutable_tensor[128, 64]",
        "nt.mutable_tensor | None",
        "'nt.tensor[nt.mutable]'",
        "Optional['nt.mutable_tensor']",
    ],
)
def test_a_parameter_is_mutable_by_any_annotation_that_says_so(annotation: str) -> None:
    """A mutable parameter may be written and must be returned; other parameters are read-only."""
    text = f"{HEAD}@nki.jit\ndef kernel(x, y: {annotation}):\n    nl.store(y, nl.load(x))\n"
    assert broken(f"{text}    return y\n") == set()
    assert broken(f"{text}    return x\n") == {"NKT204"}
    other = text.replace("mutable_tensor", "tensor").replace("nt.mutable", "1")
    assert broken(f"{other}    return y\n") == {"NKT214"}

"""The stubs contain every documented name, and mypy checks kernels with them."""

import ast
import shutil
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner
from mypy import stubtest

from difftest.cli.main import main
from difftest.simulator.entry.install import embedded, embedded_modules
from difftest.tools.api.documented import CLASSIC, TODAY, documented_names
from difftest.tools.lint.stubs import public_names, stub_files
from tests.every import every
from tests.unit.tools.lint.mypy_here import said_by_mypy, write_untyped_numpy

ROOT = Path(__file__).parents[4]
ALLOWED = r"""
nki\.typing\.MYPY
neuronxcc\.nki\.typing\.MYPY
neuronxcc\.nki\.tensor\..*  # the runtime's class is for isinstance alone; Tensor has the methods
nki\.language\.NkiTensor\.__class_getitem__  # for shapes in annotations
nki\.language\.NkiGrid\.__init__  # nl.tiles makes them
nki\.language\.NkiScalar\.__init__  # nisa.scalar_load makes them
nki\.isa\.NkiInstruction\.__init__  # instructions make them
"""
TODAYS = """\
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki.typing as nt
from nki.isa.constants import engine
from nki.language.tensor import NkiTensor

@nki.jit
def kernel(x: nt.tensor[128, 512], y: nl.NkiTensor, z: NkiTensor):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((nl.tile_size.pmax, 512), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=tile, op=nl.exp, data=tile.reshape((128, 2, 256)), scale=y)
    nisa.tensor_copy(dst=tile, src=tile[0:3], engine=engine.vector)
    nisa.dma_copy(dst=out, src=tile.ap([[512, 128], [1, 512]]))
    nisa.activationn(dst=tile, op=nl.exp, data=tile)  # attr-defined
    nisa.activation(dst=tile, op=nl.exp, dat=tile)  # call-arg
    nisa.tensor_copy(tile, tile, engine=nl.sbuf)  # arg-type
    tile.astype(nl.bfloat16)  # attr-defined
    nl.tile_size.fmax  # attr-defined
    return out + tile  # operator
"""
CLASSICS = """\
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
from neuronxcc.nki.language.constants import sizeinbytes

@nki.jit
def kernel(x: nt.tensor[128, 512], y: nt.mutable_tensor):
    out = nl.ndarray((nl.par_dim(128), 512), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    i, j = nl.mgrid[0:128, 0:512]
    tile: nt.tensor[128, 512] = nl.load(x[i, j], mask=(i < 3))
    out[i, j] = nl.exp(tile) * 2 + 1.0
    nl.store(y, value=nisa.activation(op=nl.exp, data=out.astype(nl.bfloat16)))
    nisa.activationn(op=nl.exp, data=tile)  # attr-defined
    nisa.activation(op=nl.exp, data=tile, dst=tile)  # call-arg
    nisa.reduce_cmd.load_reduce  # attr-defined
    ncc.psum.mod_alloc(base_addr=0)  # call-arg
"""


def declared(text):
    """Yield the public names of a stub."""
    nodes = list(ast.parse(text).body)
    nodes += [
        inner for node in nodes if isinstance(node, ast.If) for inner in node.body
    ]
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case (
                ast.AnnAssign(target=ast.Name(id=name))
                | ast.Assign(targets=[ast.Name(id=name)])
            ):
                yield name
            case ast.ImportFrom(names=[ast.alias(name=name, asname=given)]) if (
                name == given
            ):
                yield name


written = cache(stub_files)


def file_of(module):
    """Return the file of a module's stub."""
    root, _, inner = module.partition(".")
    path = f"{root}-stubs/{inner.replace('.', '/')}"
    files = written()
    return files.get(f"{path}.pyi") or files[f"{path.rstrip('/')}/__init__.pyi"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write the stubs without the suffix ``-stubs``, which mypy only accepts in site-packages."""
    CliRunner().invoke(main, ["stubs", str(tmp_path / "written")])
    for root in ("nki", "neuronxcc"):
        shutil.copytree(
            tmp_path / "written" / f"{root}-stubs", tmp_path / "path" / root
        )
    write_untyped_numpy(tmp_path / "path")
    monkeypatch.setenv("MYPYPATH", str(tmp_path / "path"))
    monkeypatch.chdir(ROOT)
    return tmp_path


@every("dialect", [CLASSIC, TODAY])
def test_every_documented_name_is_declared(dialect):
    names = documented_names(dialect)
    modules_of = {one.module for one in names}
    by_module = {
        one: set(declared(file_of(dialect.package + one))) for one in modules_of
    }
    assert [one for one in names if one.name not in by_module[one.module]] == []
    assert len(names) > 150


@every("name", sorted(embedded_modules()))
def test_a_stub_declares_exactly_the_served_names(name):
    own = [
        one
        for one in declared(file_of(name))
        if not one.startswith("_") and one != "MYPY"
    ]
    assert sorted(own) == public_names(name, embedded_modules()[name])


def test_later_names_are_there_and_ended_names_are_marked():
    language = file_of("nki.language")
    assert {"tiles", "int64", "NkiTileGrid"} <= set(declared(language))
    mark = "@deprecated('ended with NKI 0.7: nl.fori_loop')\ndef dynamic_range("
    assert mark in language


def test_stubtest_finds_one_planted_bug_and_nothing_else(folder, capsys):
    stub = folder / "path" / "nki" / "isa" / "__init__.pyi"
    text = stub.read_text()
    assert text.count("relu_param: Any = 0.0") == 1
    stub.write_text(text.replace("relu_param: Any = 0.0", "relu_param: Any = 1.0"))
    (folder / "allowed").write_text(ALLOWED)
    words = [
        "nki",
        "neuronxcc",
        "--concise",
        "--ignore-missing-stub",
        "--ignore-disjoint-bases",
    ]
    with embedded():
        code = stubtest.test_stubs(
            stubtest.parse_options([*words, "--allowlist", str(folder / "allowed")])
        )
    said = capsys.readouterr().out
    assert said.count("\n") == 1, said
    assert said.startswith(
        'nki.isa.activate2 is inconsistent, runtime parameter "relu_param" has'
    )
    assert code == 1


def test_mypy_accepts_our_kernels_and_finds_the_marked_errors(folder):
    files = {"todays.py": TODAYS, "classics.py": CLASSICS}
    for name, text in files.items():
        (folder / name).write_text(text)
    options = [
        "--config-file=",
        "--cache-dir",
        str(folder / "cache"),
        "--check-untyped-defs",
    ]
    options += ["--explicit-package-bases", "--no-pretty", "--hide-error-context"]
    said, errors, _ = said_by_mypy(
        *options, *(str(folder / one) for one in files), "kernels"
    )
    assert errors == ""
    lines = [line for line in said.splitlines() if ": error: " in line]
    found = {(Path(line.partition(":")[0]).name, line.split(":")[1], line[:-1].rpartition("[")[2])
             for line in lines}  # fmt: skip
    marked = {
        (name, str(number), line.partition("# ")[2])
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if "# " in line
    }
    assert found == marked
    assert len(marked) == 10


def test_the_command_writes_a_distribution(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = CliRunner().invoke(main, ["stubs", "typings"])
    assert first.exit_code == 0
    assert first.stdout == (
        f"{len(written())} files in typings; "
        # a path, which is not the package index's typings
        f"install them with: pip install {tmp_path / 'typings'}\n"
    )
    files = {
        str(file.relative_to(tmp_path / "typings")): file.read_text()
        for file in tmp_path.rglob("*")
        if file.is_file()
    }
    assert files == written()  # made again
    assert f'version = "{version("nki-difftest")}"' in files["pyproject.toml"]
    assert files["nki-stubs/py.typed"] == "partial\n"
    blank = CliRunner().invoke(main, ["stubs", "a b"])
    assert blank.stdout.endswith(f'pip install "{tmp_path / "a b"}"\n')

"""A candidate's files: which are read, and how they are loaded in the candidate's world."""

import os

import pytest

from difftest.tools.verdict.candidate import load_candidate, read_candidate
from difftest.tools.verdict.outcome import Outcome
from difftest.tools.verdict.sources import CandidateFiles, OutsideLanguage
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, judged, source

TOO_LARGE = {
    "no Python": ("x = (", "it cannot be read"),
    "a null": ("x = '\0'", "it cannot be read"),
    "letters that are no letters": (
        "a.\uff3f\uff3fclass\uff3f\uff3f",
        "it cannot be read",
    ),
    "nested too deeply": ("x = " + "(" * 300 + ")" * 300, ""),
    "attributes of attributes": ("x = a" + ".a" * 900, "nested more than"),
    "480 times elif": ("if 1:\n    0\n" + "elif 1:\n    0\n" * 480, "nested more than"),
    "too large": ("x = '" + "x" * 2**20 + "'", "bytes"),
}


@every("name", TOO_LARGE)
def test_a_file_that_cannot_be_used_is_told(tmp_path, name):
    text, said = TOO_LARGE[name]
    file = tmp_path / "candidate.py"
    file.write_text(f"{text}\n{RIGHT}")
    with pytest.raises(OutsideLanguage) as caught:
        read_candidate(file, "t.py::t")
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{file}:")
    assert caught.value.violation.remedy


def test_a_helper_that_cannot_be_used_is_told_where_a_kernel_needs_it(worker, tmp_path):
    (tmp_path / "helper.py").write_text("def scale(:\n")
    text = source("return store(total(a, b))", "import helper\n")
    assert judged(worker, tmp_path, text, 2).outcome is Outcome.AGREES
    text = source("helper.scale()\nreturn store(total(a, b))", "import helper\n")
    judgement = judged(worker, tmp_path, text, 2)
    assert judgement.outcome is Outcome.OUTSIDE_LANGUAGE
    assert "helper (it cannot be read: " in judgement.reason


def test_a_kernels_file_has_no_name_of_a_module_of_python(tmp_path):
    file = tmp_path / "random.py"  # the worker would be without its own
    file.write_text(RIGHT)
    with pytest.raises(
        OutsideLanguage, match="random is also the name of an installed module"
    ):
        read_candidate(file, "t.py::t")


@every("kind", ["fifo", "link", "folder"])
def test_only_regular_files_of_its_folder_are_read(tmp_path, kind):
    folder = tmp_path / "own"
    folder.mkdir()
    place = folder / "helper.py"
    (tmp_path / "other.py").write_text("x = 1\n")
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(tmp_path / "other.py")
    else:
        place.mkdir()
    file = folder / "candidate.py"
    file.write_text(source("return store(total(a, b))", "import helper\n"))
    files = CandidateFiles(file)
    assert list(files.sources) == ["candidate"]
    assert list(files.faults) == ["helper"]


PACKAGE = {
    "pack/__init__.py": "raise ValueError('it runs')\n",
    "pack/sub/__init__.py": "_OWN = 2.0\n",
    "pack/sub/_tiles.py": "import numpy as np\n\n_HALF = float(np.float32(0.5))\n",
    "pack/sub/other.py": "from . import _OWN, _tiles\nfrom ._tiles import _HALF as _h\n"
    "\n\ndef one():\n    return _OWN * _h * _tiles._HALF * 2\n",
}
GUARDED = """
import dataclasses
import logging
import typing as t
import warnings
from enum import Enum

from .sub import other

try:
    import torch
except ImportError:
    torch = None
if t.TYPE_CHECKING:
    import jax


@dataclasses.dataclass(frozen=True)
class Plan:
    _rows: int
    _note: "t.ClassVar[str]" = ""

    @property
    def rows(self):
        return self._rows if torch is None else 0


class Op(Enum):
    PLUS = "plus"


class Taller(Plan):
    def __init__(self, rows):
        super().__init__(**{"_rows": rows})

    @property
    def rows(self):
        return super().rows


logging.getLogger(__name__).warning("loaded %s", __name__)
warnings.warn("loaded")
"""
BODY = (
    "x = a.shape[1]\nif x == -1:\n    0\n"
    + "elif x == -1:\n    0\n" * 400
    + "plan = Taller(a.shape[0])\nassert plan.rows == a.shape[0], f'{type(a).__name__}'\n"
    "assert (lambda **own: own)(**{'_own': 1}) == {'_own': 1}\n"
    "print('{:>{}}'.format('x', 3), Op.PLUS.value)\ntile = total(a, b, getattr(nl, 'add'))\n"
    "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=other.one())\n"
    "return store(tile)"
)


def test_a_candidate_of_several_files_runs_as_it_does_in_python(worker, tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    judgement = judged(worker, tmp_path / "pack", source(BODY, GUARDED), 4)
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()


def test_what_runs_as_a_script_alone_is_not_looked_at(worker, tmp_path):
    script = (
        '\nif __name__ == "__main__":\n    import torch\n    open("x").read(torch._C)\n'
    )
    judgement = judged(worker, tmp_path, RIGHT + script, 2)
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()


def test_a_module_that_is_opened_is_written_down(worker, tmp_path):
    text = source("string.capwords('a')\nreturn store(total(a, b))", "import string\n")
    assert judged(worker, tmp_path, text, 2).outcome is Outcome.OUTSIDE_LANGUAGE
    judgement = judged(worker, tmp_path, text, 2, allow=("string",))
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()


@every("encoding", ["rot13", "utf-7", "unicode_escape", "utf-16", "cp1252", "unheard"])
def test_only_plain_encodings_are_read(tmp_path, encoding):
    file = tmp_path / "candidate.py"
    file.write_bytes(f"# coding: {encoding}\n{RIGHT}".encode())
    with pytest.raises(OutsideLanguage, match=r"candidate\.py:1: it cannot be read"):
        read_candidate(file, "t.py::t")


@every("encoding", ["latin-1", "ascii", "utf-8", "utf-8-sig"])
def test_a_candidate_runs_in_a_plain_encoding(worker, tmp_path, encoding):
    letter = "x" if encoding == "ascii" else "é"
    text = f"# coding: {encoding.removesuffix('-sig')}\nassert len('{letter}') == 1\r\n"
    file = tmp_path / "candidate.py"
    file.write_bytes((text + RIGHT).encode(encoding))
    described = load_candidate(worker, read_candidate(file, "t.py::t"), "add")
    assert [row[0] for row in described["signature"]] == ["a", "b"]

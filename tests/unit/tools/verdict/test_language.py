"""The candidate's language: code outside of it is reported by line, and does not run."""

import os
import sys

import pytest

from difftest.tools.verdict.candidate import check_language, load_candidate
from difftest.tools.verdict.language import MODULES, Language, OutsideLanguage
from difftest.tools.verdict.outcome import Outcome
from tests.every import every
from tests.unit.tools.verdict.cheats.outside import OUTSIDE
from tests.unit.tools.verdict.kernels import RIGHT, judged, source


@every("name", OUTSIDE)
def test_a_cheat_is_outside(tmp_path, name):
    text, said = OUTSIDE[name]
    before, _, body = f"{text}\nreturn store(total(a, b))".rpartition("---\n")
    file = tmp_path / "candidate.py"
    file.write_text(source(body, before))
    with pytest.raises(OutsideLanguage) as caught:
        Language(file)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{file}:")
    assert all(one.remedy for one in caught.value.breaches)


def test_no_module_is_there_that_is_not_listed(tmp_path):
    others = [
        "concurrent.futures",
        "torch",
        "difftest.tools.verdict.worker",
        "tests.unit.tools.verdict",
    ]
    names = [*others, *(sys.stdlib_module_names - MODULES.keys())]
    file = tmp_path / "candidate.py"
    file.write_text("".join(f"import {name}\n" for name in names))
    with pytest.raises(OutsideLanguage) as caught:
        Language(file)
    told = [one.what for one in sorted(caught.value.breaches, key=lambda one: one.line)]
    assert told == [f"the import of {name}" for name in names]


def test_many_ways_are_tried():
    assert len(OUTSIDE) >= 90


@every(
    "name, text",
    [
        ("sibling", "import os\n\n\ndef scale():\n    return os.getpid()\n"),
        ("sibling", "def scale(:\n"),
        ("json", "def scale(): ...\n"),
    ],
)
def test_what_it_imports_is_held_to_the_same(tmp_path, name, text):
    (tmp_path / f"{name}.py").write_text(text)
    file = tmp_path / "candidate.py"
    file.write_text(source("return store(total(a, b))", f"from {name} import scale\n"))
    with pytest.raises(OutsideLanguage) as caught:
        Language(file)
    assert name in str(caught.value)


def test_a_kernels_file_has_no_name_of_a_module_of_python(tmp_path):
    file = tmp_path / "random.py"  # the worker would be without its own
    file.write_text(RIGHT)
    with pytest.raises(
        OutsideLanguage, match="random is also the name of an installed module"
    ):
        Language(file)


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
    with pytest.raises(OutsideLanguage):
        Language(file)


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
    text = source("time.time()\nreturn store(total(a, b))", "import time\n")
    assert judged(worker, tmp_path, text, 2).outcome is Outcome.OUTSIDE_LANGUAGE
    judgement = judged(worker, tmp_path, text, 2, allow=("time",))
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()


@every("encoding", ["rot13", "utf-7", "unicode_escape", "utf-16", "cp1252", "unheard"])
def test_only_plain_encodings_are_read(tmp_path, encoding):
    file = tmp_path / "candidate.py"
    file.write_bytes(f"# coding: {encoding}\n{RIGHT}".encode())
    with pytest.raises(OutsideLanguage, match=r"candidate\.py:1: it cannot be read"):
        Language(file)


@every("encoding", ["latin-1", "ascii", "utf-8", "utf-8-sig"])
def test_a_candidate_runs_in_a_plain_encoding(worker, tmp_path, encoding):
    letter = "x" if encoding == "ascii" else "é"
    text = f"# coding: {encoding.removesuffix('-sig')}\nassert len('{letter}') == 1\r\n"
    file = tmp_path / "candidate.py"
    file.write_bytes((text + RIGHT).encode(encoding))
    described = load_candidate(worker, check_language(file, "t.py::t", ()), "add")
    assert [row[0] for row in described["signature"]] == ["a", "b"]

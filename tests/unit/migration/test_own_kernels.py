"""How far the project's own classic kernels come: the figures of docs/migrating.md."""

from pathlib import Path

import pytest

from difftest.migration.proof import Arguments, ProofError, prove
from difftest.migration.rewriting import migrate
from difftest.migration.rules import OTHERS

ROOT = Path(__file__).parents[3]
CLASSIC = ROOT / "kernels" / "classic"
SMALL = {"M_TILES": 1, "N_TILES": 1, "K_TILES": 1}
BOTH = ("float32", "bfloat16")
PROVEN = {
    "nki_matmul_tiled_": ("matmul", [(256, 128), (256, 512), (128, 512)], {}, BOTH),
    "vector_add_naive": ("vector_add", [(100,), (100,)], {}, ("float32",)),
    "vector_add_tiled": ("vector_add", [(512,), (512,)], {}, ("float32",)),
    "vector_add_stream": ("vector_add", [(512,), (512,)], {}, BOTH),
    "matmul_hoisted": ("tutorial_matmul", [(256, 128), (256, 512)], {}, BOTH),
    "matmul_blocked": ("tutorial_matmul", [(256, 256), (256, 512)], SMALL, BOTH),
    "transpose_by_tiles": ("transpose", [(256, 128)], {}, BOTH),
}
LEFT = {"conv2d": 3, "matmul": 0, "transpose": 2, "tutorial_matmul": 0, "vector_add": 0}


def new_file(name, folder):
    file = folder / f"{name}.py"
    file.write_text(migrate((CLASSIC / f"{name}.py").read_text()).text)
    return file


@pytest.mark.parametrize("kernel", PROVEN)
def test_kernels_that_are_carried_over_and_proven(kernel, tmp_path):
    name, shapes, keywords, dtypes = PROVEN[kernel]
    given = Arguments(shapes, keywords)
    runs = prove(CLASSIC / f"{name}.py", new_file(name, tmp_path), kernel, dtypes, given)
    assert runs == 3 * len(dtypes)


def test_a_vector_operand_in_bfloat16_is_told(tmp_path):
    new, given = new_file("vector_add", tmp_path), Arguments([(128,), (128,)], {})
    with pytest.raises(ProofError, match="operand0 of bfloat16"):
        prove(CLASSIC / "vector_add.py", new, "vector_add_naive", ["bfloat16"], given)


def test_what_is_left_in_each_file():
    files = [file for file in sorted(CLASSIC.glob("*.py")) if file.stem != "__init__"]
    assert {file.stem: len(migrate(file.read_text()).left) for file in files} == LEFT


def test_each_step_of_the_ladder_has_a_comment_for_what_it_imports():
    steps = sorted((CLASSIC / "conv2d_ladder").glob("*.py"))
    kernels = [text for text in (step.read_text() for step in steps) if "\n@nki.jit\n" in text]
    assert len(kernels) == 8
    assert all(OTHERS in migrate(text).left for text in kernels)


def test_the_page_has_these_figures():
    page = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    files = sorted(CLASSIC.rglob("*.py"))
    kernels = sum(file.read_text().count("\n@nki.jit\n") for file in files)
    assert f"carries over {len(PROVEN)} of {kernels} kernels" in page
    assert all(f"`{kernel}`" in page for kernel in PROVEN)

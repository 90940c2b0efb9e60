"""Migration of the project's own classic kernels: the figures of docs/how-to/migrate.md."""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from difftest.tools.migration.rewriting import Package
from difftest.tools.migration.validation import (
    ValidationSettings,
    calls_of_shapes,
    validate_translation,
)
from tests.every import every
from tests.kernels.budget import NIGHTLY

ROOT = Path(__file__).parents[4]
CLASSIC = ROOT / "kernels" / "classic"
DTYPES = ("float32", "bfloat16")
SIZES = {
    "n": st.sampled_from([1, 100, 128]),
    "chunks": st.sampled_from([256, 512]),
    "k": st.sampled_from([128, 256]),
}
SMALL = {"M_TILES": 1, "N_TILES": 1, "K_TILES": 1}
LAYER = [(2, 128, 5, 4), (128, 128, 2, 3 - 1), (128,)]
POOLED = [(1, 128, 5, 7), (256, 128, 2, 2), (256,)]
RUNGS = ("whole_plane", "baseline", "halo_tiles", "cached_weights", "flat_weights")
RUNGS += ("without_copies", "broadcast_bias", "row_tiles")
ALIKE = RUNGS if NIGHTLY else ("baseline", "cached_weights", "row_tiles")
"""Kernels whose new form each run validates; the nightly run validates all."""
PROVEN = {
    "nki_matmul_tiled_": ("matmul.py", [("k", 128), ("k", 512), (128, 512)], {}),
    "vector_add_naive": ("vector_add.py", [("n",), ("n",)], {}),
    "vector_add_tiled": ("vector_add.py", [("chunks",), ("chunks",)], {}),
    "vector_add_stream": ("vector_add.py", [("chunks",), ("chunks",)], {}),
    "matmul_hoisted": ("tutorial_matmul.py", [("k", 128), ("k", 512)], {}),
    "matmul_blocked": ("tutorial_matmul.py", [("k", 256), ("k", 512)], SMALL),
    "transpose_by_tiles": ("transpose.py", [("k", 128)], {}),
    "matrix_transpose": ("transpose.py", [("k", 256)], {"PANEL_BYTES": 512}),
    "attention_in_phases": ("attention.py", [(128, 512)] * 3, {}),
    "fused_attention": ("attention.py", [(128, 512)] * 3, {}),
    "linear_gelu": ("linear.py", [("k", 128), ("k", 512), (1, 512)], {}),
    "fused_conv2d_maxpool": ("conv2d.py", POOLED, {"pool_size": 2}),
    **{
        f"conv2d_{rung}": (f"conv2d_ladder/{rung}.py", POOLED, {"pool_size": 2})
        for rung in RUNGS
    },
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Migrate the classic kernels into a new folder ``kernels/nki``."""
    output = tmp_path_factory.mktemp("new") / "kernels" / "nki"
    package = Package(CLASSIC, output, CLASSIC.rglob("*.py"))
    for place, result in package.migrated().items():
        (output / place).parent.mkdir(parents=True, exist_ok=True)
        (output / place).write_text(result.text)
        assert result.left == (), f"{place}: {result.left}"
    return package


def _dtypes(place):
    """Return one dtype for each step of the ladder, because the steps compute the same function."""
    return DTYPES[len(place) % 2 :][:1] if "ladder" in place else DTYPES


@every(
    "kernel", [name for name in PROVEN if name[7:] in ALIKE or name[7:] not in RUNGS]
)
def test_kernels_that_are_carried_over_and_proven(kernel, package):
    place, shapes, keywords = PROVEN[kernel]
    sizes = {
        name: SIZES[name] for shape in shapes for name in shape if isinstance(name, str)
    }
    calls = calls_of_shapes(shapes, sizes, _dtypes(place), keywords, (), 1)
    files = (
        package.sources(folder, Path(place)) for folder in (CLASSIC, package.output)
    )
    proof = validate_translation(*files, kernel, calls, ValidationSettings())
    assert len(proof.same) == len(calls) >= 1


def test_the_convolution_without_pooling(package):
    calls = calls_of_shapes(LAYER, {}, DTYPES, {}, (), 1)
    files = (
        package.sources(folder, Path("conv2d.py"))
        for folder in (CLASSIC, package.output)
    )
    assert len(
        validate_translation(
            *files, "fused_conv2d_maxpool", calls, ValidationSettings()
        ).same
    ) == len(calls)


def test_the_page_has_these_figures():
    page = (ROOT / "docs" / "how-to" / "migrate.md").read_text(encoding="utf-8")
    files = sorted(CLASSIC.rglob("*.py"))
    kernels = sum(file.read_text().count("\n@nki.jit\n") for file in files)
    assert len(PROVEN) == kernels
    assert f"All {kernels} classic kernels in `kernels/classic`" in page

import pytest
from click.testing import CliRunner

from difftest.analysis.detectors.table import detectors
from difftest.cli.main import main
from difftest.cli.signatures import explained_name, signature_pages, signatures


def test_a_name_is_explained_in_both_dialects():
    result = CliRunner().invoke(main, ["explain", "nisa.activation"])
    assert result.exit_code == 0, result.output
    today, classic = result.stdout.rstrip().split("\n\n")[::-1]
    for text in (today, classic):
        assert "- instruction activation, on scalar\n  - `data`: " in text
    assert {today.partition("(")[0], classic.partition("(")[0]} == {
        "nki.isa.activation",
        "neuronxcc.nki.isa.activation",
    }
    assert (
        "nki.isa.activation(dst, op, data, bias=None, scale=1.0, reduce_op=None"
        in result.stdout
    )
    wide = [line for line in result.stdout.splitlines() if len(line) > 80]
    assert [line for line in wide if "https://" not in line] == []


def test_a_rule_of_lint_is_explained_by_its_page():
    result = CliRunner().invoke(main, ["explain", "NKL101"])
    assert result.exit_code == 0, result.output
    assert (
        result.stdout
        == CliRunner().invoke(main, ["lint", "--explain", "NKL101"]).stdout
    )


def test_a_detector_is_explained_by_its_fault_and_its_page():
    result = CliRunner().invoke(main, ["explain", "program-race"])
    assert result.exit_code == 0, result.output
    race = detectors()["program-race"]
    headline, group, severity, page, *_ = result.stdout.splitlines()
    assert headline == f"program-race: {race.title}"
    assert group.split() == ["group:", "Programs", "of", "a", "grid"]
    assert severity.split() == ["severity:", "error", "at", "most"]
    assert page.split() == ["page:", race.page]
    assert "# difftest: allow[program-race]" in result.stdout


def test_the_nearest_detector_of_a_misspelled_one_is_named():
    said = CliRunner().invoke(main, ["explain", "program-rase"])
    assert said.exit_code == 1
    assert " ".join(said.stderr.split()).endswith("; did you mean program-race?")


def test_a_name_that_nobody_knows_has_no_signature():
    said = CliRunner().invoke(main, ["explain", "nisa.activaton"])
    assert " ".join(said.stderr.split()).endswith("; did you mean activation?")
    assert explained_name("nisa.activate_all") == explained_name("nl.activation") == ""


def test_each_function_is_on_the_page_of_its_module():
    pages = signature_pages()
    assert {"signatures-nki-isa", "signatures-neuronxcc-nki-language"} <= set(pages)
    assert sum(page.count("\n## ") for page in pages.values()) == len(signatures())


@pytest.mark.parametrize(
    ("function", "operand"),
    [
        ("tensor_scalar", "operand0"),
        ("tensor_scalar", "operand1?"),
        ("tensor_scalar_reduce", "operand0"),
    ],
)
def test_an_operand_that_must_be_float32_says_so(function: str, operand: str) -> None:
    """The page of nisa.tensor_scalar: arithmetic operators take operands of float32."""
    texts = explained_name(f"nisa.{function}").split("\n\n")
    [today] = [text for text in texts if text.startswith("nki.")]
    [line] = [
        line for line in today.splitlines() if line.startswith(f"  - `{operand}`")
    ]
    assert line.endswith(
        "any dtype; a tile of float32 where its operator is arithmetic"
    )
    others = [text for text in texts if text is not today]
    assert all("where its operator is arithmetic" not in text for text in others)
    assert "arithmetic" not in explained_name("nisa.tensor_tensor").partition("- ")[2]


def test_a_signature_has_the_levels_and_the_limits_of_each_machine():
    """The limits are exactly the limits of the instruction's rules."""
    product, loop, copy = map(
        explained_name, ("nisa.nc_matmul", "nl.fori_loop", "nisa.dma_copy")
    )
    assert (
        "  - limit `gemm_moving_fmax`: 512 on trn1, 512 on trn2, 512 on trn3\n"
        in product
    )
    assert (
        "  - limit `pe_tile_sizes`: (64, 128) on trn1, (32, 64, 128) on trn2, ("
        in product
    )
    assert "bn_stats_fmax" not in product
    assert "bn_stats_fmax" in explained_name("nisa.bn_stats")
    assert (
        "\n- `nl.fori_loop`: since NKI 0.6 (SDK 2.32); else nl.dynamic_range\n" in loop
    )
    assert (
        "\n- `nisa.dma_copy(dst_rmw_op)`: until NKI 0.3; else nisa.dma_compute\n"
        in copy
    )

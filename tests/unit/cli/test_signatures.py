from click.testing import CliRunner

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
    assert "nki.isa.activation(dst, op, data, bias=None, scale=1.0, reduce_op=None" in result.stdout


def test_a_name_that_nobody_knows_has_no_signature():
    assert explained_name("nisa.activate_all") == explained_name("nl.activation") == ""


def test_each_function_stands_on_the_page_of_its_module():
    pages = signature_pages()
    assert {"signatures-nki-isa", "signatures-neuronxcc-nki-language"} <= set(pages)
    assert sum(page.count("\n## ") for page in pages.values()) == len(signatures())

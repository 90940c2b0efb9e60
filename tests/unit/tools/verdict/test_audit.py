"""Fake outputs against specs: strong specs, weak specs, and a spec that proves nothing."""

from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

from difftest import sizes
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.testing.contract.spec import KernelSpec
from difftest.tools.verdict.audit import Audit, audit_spec
from difftest.tools.verdict.command import verdict
from tests.every import every


@jit
def scaled(x, factor):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def spec_of(factor, **options):
    return KernelSpec(
        kernel=scaled,
        reference=lambda x, factor: x.astype(np.float64) * factor,
        domain={"p": sizes(1, 4), "n": sizes(1, 4), "factor": [factor]},
        inputs={"x": "p n"},
        parameters=("factor",),
        **options,
    )


@every(
    "factor, weak, passed",
    [
        (3.0, (), "zeros"),
        (0.0, ("zeros",), "zeros"),
        (1.0, ("the first input", "the last input"), "the first input"),
    ],
)
def test_a_spec_that_a_fake_output_passes_is_weak(factor, weak, passed):
    audit = audit_spec(spec_of(factor), 6)
    assert audit.decided > 2
    assert tuple(one.partition(" in the place")[0] for one in audit.weaknesses) == weak
    assert (audit.passed[passed] == audit.decided) == bool(weak)
    assert all(f"weak: {one}" in str(audit) for one in audit.weaknesses)


def test_of_data_that_only_move_an_input_is_no_fake_output():
    assert audit_spec(spec_of(1.0, reduction=0), 4).weaknesses == ()
    passed = Counter({"zeros": 4, "the first input": 4})
    (weak,) = Audit(moves=True, cases=4, decided=4, passed=passed).weaknesses
    assert weak.startswith("zeros")


def test_a_spec_of_which_no_case_decides_is_weak():
    audit = audit_spec(spec_of(float("nan")), 5)
    assert audit.decided == 0
    (why,) = audit.weaknesses
    assert "decides" in why


def test_a_kernel_that_is_wrong_audits_nothing():
    spec = KernelSpec(
        kernel=scaled,
        reference=lambda x, factor: x.astype(np.float64) + 1,
        domain={"p": sizes(1, 4), "n": sizes(1, 4), "factor": [2.0]},
        inputs={"x": "p n"},
        parameters=("factor",),
    )
    audit = audit_spec(spec, 5)
    assert audit.cases > audit.decided
    assert audit.reasons == {"the kernel is wrong"}
    assert pytest.approx(audit.decided, abs=2) == 0


SPEC_FILE = """
import numpy as np
from difftest import kernel_test, sizes
from tests.unit.tools.verdict.test_audit import scaled

@kernel_test(
    kernel=scaled,
    reference=lambda x, factor: x.astype(np.float64) * factor,
    domain={{"p": sizes(1, 4), "n": sizes(1, 4), "factor": [{factor}]}},
    inputs={{"x": "p n"}},
    parameters=("factor",),
)
def test_scaled(case): ...
"""


@every(
    "factor, code, said", [(3.0, 0, "no fake output passes"), (0.0, 7, "weak: zeros")]
)
def test_audit_says_whether_fake_outputs_pass(tmp_path, factor, code, said):
    file = tmp_path / f"test_audited_{code}.py"
    file.write_text(SPEC_FILE.format(factor=factor))
    words = ["--audit", "--cases", "5", f"{file}::test_scaled"]
    result = CliRunner().invoke(verdict, words)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "::test_scaled: 5 cases, 5 of them decide" in result.output


@every(
    "words",
    [
        ("--json", "-"),
        ("--markdown", "audit.md"),
        ("--batch", "kernels:add", "--results", "results.jsonl"),
        ("--case", "{}"),
        ("--seed", "1"),
        ("--timeout", "10"),
        ("--allow", "torch"),
    ],
)
def test_an_audit_takes_no_option_of_a_verdict(words):
    result = CliRunner().invoke(verdict, ["--audit", *words, "t.py::t"])
    assert result.exit_code == 2, result.output
    assert f"--audit does not go with {words[0]}" in result.output

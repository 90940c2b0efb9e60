import pytest
from hypothesis import strategies as st

from difftest.tools.migration.validation import (
    Sources,
    ValidationCall,
    ValidationError,
    ValidationSettings,
    calls_of_shapes,
    shapes_text,
    validate_translation,
)
from tests.every import every

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(a):
    assert a.shape[1] > 1, "a has columns"
    out = nl.ndarray(a.shape, dtype={dtype}, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    twice = nl.ndarray(a.shape, dtype={between}, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=twice, data1=tile, data2=tile, op=nl.{op})
    last = nl.ndarray(a.shape, dtype={dtype}, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=last, data=twice, op0=nl.multiply, operand0={factor})
    nisa.dma_copy(dst=out, src=last)
    return {result}
"""
SAME = {
    "dtype": "a.dtype",
    "between": "a.dtype",
    "op": "add",
    "factor": 0.3,
    "result": "out",
}


def proven(folder, *, may_round=False, columns=(16, 40), old=SAME, count=3, **changes):
    files = [folder / "old.py", folder / "new.py"]
    for file, parts in zip(files, (old, old | changes), strict=True):
        file.write_text(KERNEL.format(**parts))
    sizes = {"columns": st.sampled_from(columns)}
    calls = calls_of_shapes(
        [(128, "columns")], sizes, ["float32", "bfloat16"], {}, (), count
    )
    return validate_translation(
        *map(Sources, files), "double", calls, ValidationSettings(may_round=may_round)
    )


def test_the_same_kernel_is_proven(tmp_path):
    proof = proven(tmp_path)
    assert (len(proof.same), proof.rounded, proof.refused) == (6, [], [])
    assert proof.text().startswith(
        "6 cases agree bit for bit; float32, bfloat16; shapes [128, "
    )


@every(
    "changes, said",
    [
        (
            {"op": "multiply"},
            r"float32, \[128, \d+\]: array 0 differs, first at .* before, .* aft",
        ),
        (
            {"dtype": "nl.float16"},
            r"array 0 was float32\[128, \d+\], and is float16\[128, \d+\]",
        ),
        ({"result": "None"}, "2 arrays before, 1 after"),
        (
            {"result": "missing"},
            r"the new kernel fails, float32, \[128, \d+\]: NameError",
        ),
    ],
)
def test_a_difference_is_reported(tmp_path, changes, said):
    with pytest.raises(ValidationError, match=said):
        proven(tmp_path, **changes)


def test_rounding_is_distinguished_from_another_algorithm(tmp_path):
    # some are of small integers, which hide it
    rounds = {
        "between": "nl.bfloat16",
        "count": 9,
    }
    with pytest.raises(
        ValidationError, match="--rounding accepts differences due to rounding"
    ):
        proven(tmp_path, **rounds)
    proof = proven(tmp_path, may_round=True, **rounds)
    assert proof.rounded
    assert "within rounding" in proof.text()
    with pytest.raises(ValidationError, match="array 0 differs"):
        proven(tmp_path, may_round=True, factor=0.3001)


def test_cases_that_both_reject_are_counted_and_prove_nothing(tmp_path):
    proof = proven(tmp_path, columns=(1, 16), count=8)
    assert proof.refused
    assert proof.same
    assert f"{len(proof.refused)} are refused by both" in proof.text()
    with pytest.raises(
        ValidationError,
        match=r"refuse all of .*: nothing was compared; the classic: \w",
    ):
        proven(tmp_path, columns=(1,))


def test_many_shapes_are_shown_by_their_ends():
    calls = [
        ValidationCall("float32", ((n, 2), (n,)), list, {}) for n in (9, 1, 5, 3, 7)
    ]
    assert shapes_text(calls) == "5 shapes from [1, 2] [1] to [9, 2] [9]"
    assert shapes_text(calls[:2]) == "shapes [1, 2] [1]; [9, 2] [9]"

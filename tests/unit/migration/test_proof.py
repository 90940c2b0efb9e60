import pytest

from difftest.migration.proof import Arguments, ProofError, prove

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype={dtype}, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    twice = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=twice, data1=tile, data2=tile, op=nl.{op})
    nisa.dma_copy(dst=out, src=twice)
    return {result}
"""
SAME = {"dtype": "a.dtype", "op": "add", "result": "out"}


def proven(folder, **changes):
    files = [folder / "old.py", folder / "new.py"]
    for file, parts in zip(files, (SAME, SAME | changes), strict=True):
        file.write_text(KERNEL.format(**parts))
    return prove(*files, "double", ["float32", "bfloat16"], Arguments([(128, 16)], {}))


def test_the_same_kernel_is_proven(tmp_path):
    assert proven(tmp_path) == 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"op": "multiply"}, "float32, seed 0: array 0 differs, first at"),
        ({"dtype": "nl.float16"}, "array 0 was float32[128, 16], and is float16[128, 16]"),
        ({"result": "None"}, "2 arrays before, 1 after"),
        ({"result": "missing"}, "the new kernel fails, float32, seed 0"),
    ],
    ids=["values", "dtype", "count", "failure"],
)
def test_a_difference_is_told(tmp_path, changes, said):
    with pytest.raises(ProofError) as caught:
        proven(tmp_path, **changes)
    assert said in str(caught.value)

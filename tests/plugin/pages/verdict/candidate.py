import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = [nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf) for _ in "ab"]
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.subtract)
    nisa.dma_copy(dst=out, src=left)
    return out

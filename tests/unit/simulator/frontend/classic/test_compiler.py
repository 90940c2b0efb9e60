import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry import kernel as nki
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import language as nl
from tests.every import every

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


FORMS = {
    "skip, jit": lambda: ncc.skip_middle_end_transformations(nki.jit(doubled)),
    "jit, skip": lambda: nki.jit(ncc.skip_middle_end_transformations(doubled)),
    "skip(), jit": lambda: ncc.skip_middle_end_transformations()(nki.jit(doubled)),
    "stack allocator": lambda: ncc.enable_stack_allocator(nki.jit(doubled)),
    "stack allocator with a log level": lambda: ncc.enable_stack_allocator(
        log_level=20
    )(nki.jit(doubled)),
    "all of them": lambda: ncc.enable_stack_allocator(
        ncc.skip_middle_end_transformations(nki.jit(doubled))
    ),
}


@every("form", FORMS)
def test_decorators_in_either_order(form):
    assert (FORMS[form]()(DATA) == 2 * DATA).all()


def test_the_compilers_own_allocation_is_the_default():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, buffer=ncc.sbuf.auto_alloc())
        psum = nl.ndarray(x.shape, x.dtype, buffer=ncc.psum.auto_alloc())
        psum[...] = nl.load(x)
        tile[...] = nl.copy(psum)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    assert (launch(kernel, [DATA]).outputs[0] == DATA).all()

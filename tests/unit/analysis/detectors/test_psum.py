"""Accumulation in PSUM: planted mistakes of each kind, and permitted cases."""

from difftest.simulator import TRN1, TRN2, TRN3
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import isa as old_nisa
from difftest.simulator.frontend.classic import language as old_nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl

X = normal(128, 256)


def psum(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def loaded(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    held = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=held, src=tile)
    nisa.dma_copy(dst=out, src=held)
    return out


def product(dst, x, step, **options):
    """One matmul of columns ``step`` of x with others."""
    side = x[:, 64 * step : 64 * (step + 1)]
    nisa.nc_matmul(dst=dst, stationary=side, moving=side, **options)


def chains(width, steps, between=None, tensors=1):
    """Two chains of some steps each, in columns of one tensor or of two."""

    def kernel(x):
        tile = loaded(x)
        totals = [psum(64, width) for _ in range(tensors)]
        places = [totals[0][:, 0:64], totals[-1][:, width - 64 : width]]
        outs = []
        for place in places:
            for step in range(steps):
                product(place, tile, step, accumulate=step > 0)
            if between:
                outs.append(stored(place))
        return outs if between else [stored(place) for place in places]

    return nki.jit(kernel)


CHAINS = [("psum-chains", "warning")]


@every(
    "kernel, found",
    [
        (chains(128, 3), CHAINS),
        (chains(128, 1), []),
        (chains(128, 3, tensors=2), []),
        (chains(128, 3, between="read"), []),
        (chains(1024, 3), []),
    ],
)
def test_chains_in_one_bank_of_a_tensor_are_found(kernel, found):
    """A warning on the generation that failed; AWS's own kernels have such chains on later ones."""
    assert found_in(kernel, [X], machine=TRN1) == found
    assert found_in(kernel, [X]) == [(id, "note") for id, _ in found]


def test_interleaved_chains_name_both_lines():
    @nki.jit
    def kernel(x):
        tile = loaded(x)
        total = psum(64, 128)
        for step in range(3):
            product(total[:, 0:64], tile, step, accumulate=step > 0)
            product(total[:, 64:128], tile, step, accumulate=step > 0)
        return stored(total)

    (first, *_) = findings_in(kernel, [X])
    assert first.id == "psum-chains"
    assert "columns 0 and 64 of a bank" in first.happened


@every("machine", [TRN1, TRN2])
@every(
    "shape, block, found",
    [
        ((128, 2, 64), lambda k: (slice(None), k), [("psum-chains", "note")]),
        ((2, old_nl.par_dim(128), 64), lambda k: (k,), []),
    ],
)
def test_chains_of_the_classic_dialect(shape, block, found, machine):
    """Records of its compiler are missing, and blocks are separate tensors."""

    def kernel(a):
        out = old_nl.ndarray((128, 128), dtype=a.dtype, buffer=old_nl.shared_hbm)
        total = old_nl.zeros(shape, dtype=old_nl.float32, buffer=old_nl.psum)
        for step in old_nl.affine_range(2):
            tile = old_nl.load(a[:, old_nl.ds(64 * step, 64)])
            for k in range(2):
                place = total[block(k)]
                place += old_nl.matmul(old_nl.load(a), tile, transpose_x=True)
        for k in range(2):
            old_nl.store(out[:, 64 * k : 64 * k + 64], old_nl.copy(total[block(k)]))
        return out

    assert found_in(kernel, [normal(128, 128)], machine=machine) == found


def twice(accumulate, reads):
    """One tensor for two chains, in sequence."""

    def kernel(x):
        tile = loaded(x)
        total = psum(64, 64)
        outs = []
        for _ in range(2):
            for step in range(2):
                product(total, tile, step, accumulate=accumulate(step))
            if reads:
                outs.append(stored(total))
        return outs or stored(total)

    return nki.jit(kernel)


@every(
    "kernel, found",
    [
        (twice(lambda step: None, reads=True), [("psum-start", "warning")]),
        (twice(lambda step: None, reads=False), []),
        (twice(lambda step: step > 0, reads=True), []),
    ],
)
def test_a_start_that_is_left_to_the_compiler(kernel, found):
    assert found_in(kernel, [X]) == found


def on_memset(accumulate):
    def kernel(x):
        tile = loaded(x)
        total = psum(64, 64)
        nisa.memset(dst=total, value=0.0)
        for step in range(2):
            product(total, tile, step, accumulate=accumulate(step))
        return stored(total)

    return nki.jit(kernel)


@every(
    "accumulate, machine, found",
    [
        (lambda step: True, None, [("psum-foreign", "warning")]),
        (lambda step: True, TRN3, []),
        (lambda step: step > 0, None, []),
        (lambda step: None, None, []),
    ],
)
def test_a_matmul_that_adds_to_data_of_another_instruction(accumulate, machine, found):
    assert found_in(on_memset(accumulate), [X], machine=machine) == found


def test_the_last_mark_of_a_product_is_its_elements():
    """Only the columns that something else wrote are foreign."""

    @nki.jit
    def kernel(x):
        tile = loaded(x)
        total = psum(64, 128)
        nisa.memset(dst=total[:, 64:128], value=0.0)
        product(total[:, 0:64], tile, 0, accumulate=False)
        product(total[:, 0:64], tile, 1, accumulate=True)
        return stored(total)

    assert found_in(kernel, [X]) == []


# -- the classic dialect ---------------------------------------------------------------------------


def classic(start, update):
    def kernel(a):
        out = old_nl.ndarray((128, 128), dtype=a.dtype, buffer=old_nl.shared_hbm)
        tile = old_nl.load(a[:, 0:128])
        total = old_nl.ndarray((128, 128), dtype=old_nl.float32, buffer=old_nl.psum)
        start(total, tile)
        for _ in old_nl.affine_range(2):
            total += old_nisa.nc_matmul(tile, tile)
        update(total, tile)
        old_nl.store(out, old_nl.copy(total))
        return out

    return kernel


def zeros(total, tile):
    total[...] = 0.0


def copied(total, tile):
    total[...] = old_nl.copy(tile)


def nothing(total, tile):
    pass


def added(total, tile):
    total += tile


def added_elsewhere(total, tile):
    tile[...] = old_nl.add(total, tile)


@every(
    "start, update, found",
    [
        (zeros, nothing, []),
        (copied, nothing, [("psum-foreign", "warning")]),
        (zeros, added, [("psum-addition", "warning")]),
        (zeros, added_elsewhere, []),
    ],
)
def test_classic_accumulation_in_psum_has_findings_by_how_it_starts(
    start, update, found
):
    assert found_in(classic(start, update), [X]) == found

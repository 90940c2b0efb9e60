"""Arguments that a kernel writes and does not return."""

from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import language as classic
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


def updating(give):
    """A kernel that adds its second argument to its first one, and returns some arrays."""

    @nki.jit
    def kernel(total, x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        old = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=old, src=x)
        nisa.dma_copy(dst=out, src=old)
        nisa.dma_copy(dst=total, src=old)
        return give(total, x, out)

    return kernel


@every(
    "give, found",
    [
        (lambda total, x, out: None, True),
        (lambda total, x, out: out, True),
        (lambda total, x, out: total, False),
        (lambda total, x, out: (out, total), False),
        (lambda total, x, out: total[0:2], False),
    ],
)
def test_an_argument_that_is_written_is_returned(give, found):
    told = [("argument-not-returned", "warning")] if found else []
    assert found_in(updating(give), [normal(4, 8), normal(4, 8)]) == told


def test_the_finding_names_the_argument_and_the_line():
    kernel = updating(lambda total, x, out: None)
    (finding,) = findings_in(kernel, [normal(4, 8), normal(4, 8)])
    assert (
        finding.happened
        == "the kernel writes to its argument total and does not return it"
    )
    assert finding.location.text == "nisa.dma_copy(dst=total, src=old)"


def test_the_linter_has_the_rule_of_the_classic_compiler():
    def kernel(total: nt.mutable_tensor):
        classic.store(total, classic.add(classic.load(total), 1.0))

    assert found_in(kernel, [normal(4, 8)]) == []

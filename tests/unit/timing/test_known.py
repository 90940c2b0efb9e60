from difftest.simulator import TRN2, Engine
from difftest.timing.cost_model import cost_evidence
from difftest.timing.evidence import Evidence
from tests.every import every
from tests.purposes import purpose_of

MEASURED, DOCUMENTED, ASSUMED = Evidence


@every(
    "instruction, engine, known",
    [
        ("tensor_copy", Engine.VECTOR, {MEASURED, DOCUMENTED}),
        ("tensor_copy", Engine.GPSIMD, {ASSUMED}),
        ("iota", Engine.GPSIMD, {DOCUMENTED}),
        ("dma_copy", Engine.DMA, {MEASURED}),
        ("dma_transpose", Engine.DMA, {MEASURED, DOCUMENTED}),
        ("dma_gather", Engine.DMA, {MEASURED, ASSUMED}),
        ("nc_matmul", Engine.TENSOR, {MEASURED, DOCUMENTED, ASSUMED}),
        ("topk", Engine.GPSIMD, {DOCUMENTED}),
        ("local_gather", Engine.GPSIMD, {ASSUMED}),
        ("local_gather", Engine.VECTOR, set()),
    ],
)
def test_the_evidence_behind_a_cost(instruction, engine, known):
    assert cost_evidence(instruction, purpose_of(instruction), engine, TRN2) == known

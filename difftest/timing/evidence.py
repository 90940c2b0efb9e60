"""The origin of a number: measured, documented or assumed, and its source.

The tables are data files of this package (``data/*.csv``). They and
docs/reference/timing-costs.md name their sources by these keys:

- TRACE: public device traces of 44 kernels on one core of a trn2.3xlarge (neuronx-cc 2.21.18209,
  ``--disable-dge``, ``skip_middle_end_transformations``); the format was inferred, its totals
  agree with the profiler's own
- TRACE23: public profiles of classic attention kernels on trn2 by AWS's own profiler (neuronx-cc
  2.23.6484, all passes of the compiler): allenkchau/trainium-kernel-fusion at d709ddf
- PROFILES: packets by the maker of their descriptors, of attention kernels of the current
  dialect: KevGomes1403/nki-moe-megakernel at 4c06b5e, ``kernels/attn_tkg/PROFILING.md``
- TODAY: public traces of kernels of the current dialect on one core of trn2 (neuronx-cc
  2.23.6484), decoded; instructions and DMAs agree with the profiler's own where it had any
- SWEEP: tuned products of a public search on trn2, see data/measurements-trn2.csv
- WRITEUP: latencies that people published, see data/measurements-trn2.csv
- PROBE: published probes of single instructions and DMAs on one core of a trn1.2xlarge (nki 0.6.0,
  neuronx-cc 2.27.5334): the slope over 256 repeats, back to back
- ARCH2, ARCH3: AWS Neuron documentation, ``trainium_inferentia2_arch.rst``, ``trainium2_arch.rst``
- ARCH4: AWS Neuron documentation at tag v2.32.0, ``trainium3_arch.rst``
- ISA: docstrings of ``nki.isa`` at tag v2.26.0, the "Estimated instruction cost" of each
- ISA32: the docstrings at tag v2.32.0, where only ``topk`` has an estimated cost
- DMA: AWS Neuron documentation, ``nki-dma-overview.rst``, ``nki-dma-bandwidth-guide.rst`` and
  ``nki-dge.rst``
- PERF: AWS Neuron documentation, ``nki_perf_guide.rst``
- EXPLORER: AWS Neuron documentation, ``tools/neuron-explorer/``
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from difftest.support.csv_rows import csv_rows


class UnknownCostError(ValueError):
    """No source gives the requested time of an instruction or of a machine."""


class Evidence(Enum):
    """The kind of source that a number has."""

    MEASURED = "measured"
    DOCUMENTED = "documented"
    ASSUMED = "assumed"


class Figure(NamedTuple):
    """A number with its evidence and its source."""

    value: float
    evidence: Evidence
    source: str


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of ``data/<name>.csv`` as mappings from heading to cell."""
    return csv_rows(Path(__file__).parent / "data" / f"{name}.csv")

"""The plain mode's functions, all registered, and the launch that runs them."""

from __future__ import annotations

from difftest.simulator.plain import assignment as assignment
from difftest.simulator.plain import compositions as compositions
from difftest.simulator.plain import copies as copies
from difftest.simulator.plain import creation as creation
from difftest.simulator.plain import elementwise as elementwise
from difftest.simulator.plain import products as products
from difftest.simulator.plain import reductions as reductions
from difftest.simulator.plain import searches as searches
from difftest.simulator.plain import selections as selections
from difftest.simulator.plain.meanings import MEANINGS as MEANINGS
from difftest.simulator.plain.nki import computing as computing
from difftest.simulator.plain.nki import controlling as controlling
from difftest.simulator.plain.nki import moves as moves
from difftest.simulator.plain.nki import scanning as scanning
from difftest.simulator.plain.nki import selecting as selecting
from difftest.simulator.plain.nki.running import NkiRun as NkiRun
from difftest.simulator.plain.running import Run as Run
from difftest.simulator.plain.tensors import PlainTensor as PlainTensor

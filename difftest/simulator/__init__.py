"""The embedded NKI simulator: one NeuronCore in NumPy.

>>> import numpy as np
>>> from difftest.simulator import launch
>>> from difftest.simulator.entry.install import embedded
>>> with embedded():
...     import neuronxcc.nki as nki
...     import neuronxcc.nki.language as nl
>>> @nki.jit
... def twice(x):
...     out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
...     nl.store(out, nl.load(x) * 2)
...     return out
>>> result = launch(twice, [np.ones((128, 4), np.float32)])
>>> float(result.outputs[0].min())
2.0
>>> [event.opcode for event in result.trace]
['dma_copy', 'tensor_scalar', 'dma_copy']
"""

from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    Location,
    MissingNameError,
    NkiError,
    NotModelledError,
    OracleError,
    OutOfBoundsError,
    ShapeError,
    SignatureError,
    UnwrittenError,
)
from difftest.simulator.launch import LaunchResult, launch, launch_ranks
from difftest.simulator.machine import MACHINES, TRN1, TRN2, TRN3, Machine
from difftest.simulator.strictness import RuleWarning, Strictness, strictness
from difftest.simulator.trace import Allocation, Engine, Event, Region, Space, Trace
from difftest.simulator.trace_json import (
    TraceFormatError,
    trace_from_json,
    trace_to_json,
)

__all__ = [
    "MACHINES",
    "TRN1",
    "TRN2",
    "TRN3",
    "Allocation",
    "BufferError",
    "DtypeError",
    "Engine",
    "Event",
    "KernelError",
    "LaunchResult",
    "LimitError",
    "Location",
    "Machine",
    "MissingNameError",
    "NkiError",
    "NotModelledError",
    "OracleError",
    "OutOfBoundsError",
    "Region",
    "RuleWarning",
    "ShapeError",
    "SignatureError",
    "Space",
    "Strictness",
    "Trace",
    "TraceFormatError",
    "UnwrittenError",
    "launch",
    "launch_ranks",
    "strictness",
    "trace_from_json",
    "trace_to_json",
]

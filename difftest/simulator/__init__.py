"""The embedded NKI simulator: one NeuronCore in NumPy.

>>> from difftest.simulator import launch
>>> result = launch(kernel, [a, b])          # a @nki.jit function and NumPy arrays
>>> result.outputs[0], len(result.trace)
"""

from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    Location,
    NkiError,
    NotModelledError,
    OutOfBoundsError,
    ShapeError,
    UnwrittenError,
)
from difftest.simulator.launch import LaunchResult, launch
from difftest.simulator.machine import MACHINES, TRN1, TRN2, Machine
from difftest.simulator.ranks import launch_ranks
from difftest.simulator.trace import Allocation, Engine, Event, Region, Space, Trace
from difftest.simulator.trace_json import trace_to_json
from difftest.simulator.trace_reader import TraceFormatError, trace_from_json

__all__ = [
    "MACHINES",
    "TRN1",
    "TRN2",
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
    "NkiError",
    "NotModelledError",
    "OutOfBoundsError",
    "Region",
    "ShapeError",
    "Space",
    "Trace",
    "TraceFormatError",
    "UnwrittenError",
    "launch",
    "launch_ranks",
    "trace_from_json",
    "trace_to_json",
]

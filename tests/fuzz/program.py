"""A drawn kernel as data: inputs, lines and loops, which print as source text that runs."""

from __future__ import annotations

import hashlib
import linecache
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator import MACHINES
from difftest.simulator.entry.install import embedded

HEADER = """\
import ml_dtypes
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
"""
"""The imports above a kernel's text; ``neuronxcc`` is the embedded simulator."""
HEADERS = {
    "classic": HEADER,
    "nki": """\
import ml_dtypes
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
""",
}
"""One text for each dialect; the classic one is ``neuronxcc``'s."""

DRAWN = "<drawn kernel"
"""The beginning of a compiled kernel's file name."""

HOST_DTYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "bool_": np.bool_,
}
"""Dtypes by their names in ``nki.language``; the others but tfloat32 are NumPy's."""


@dataclass(frozen=True)
class Input:
    """An argument of the kernel: ``expression`` makes its array from nothing but NumPy."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    expression: str
    mutable: bool = False
    """An ``nt.mutable_tensor``, which the kernel writes in place."""

    @property
    def parameter(self) -> str:
        """The spelling of the classic dialect; the current one may write every parameter."""
        return f"{self.name}: nt.mutable_tensor" if self.mutable else self.name

    def array(self) -> np.ndarray[Any, Any]:
        values = eval(self.expression, {"np": np, "ml_dtypes": ml_dtypes})
        return np.resize(values, self.shape).astype(
            HOST_DTYPES.get(self.dtype, self.dtype)
        )

    def source(self) -> str:
        dtype = (
            f"ml_dtypes.{self.dtype}"
            if hasattr(ml_dtypes, self.dtype)
            else f"np.{self.dtype}"
        )
        return f"np.resize({self.expression}, {self.shape}).astype({dtype})"


@dataclass(frozen=True)
class Line:
    """One statement of the kernel. ``opcode`` is the API's function, for the statistics."""

    text: str
    opcode: str

    def lines(self) -> Iterator[str]:
        yield self.text

    def statements(self) -> int:
        return 1


@dataclass(frozen=True)
class Loop:
    """``for variable in range: body``."""

    variable: str
    kind: str
    count: int
    body: tuple[Statement, ...]

    def lines(self) -> Iterator[str]:
        yield f"for {self.variable} in nl.{self.kind}({self.count}):"
        for statement in self.body:
            for line in statement.lines():
                yield "    " + line

    def statements(self) -> int:
        return self.count * sum(statement.statements() for statement in self.body)


Statement = Line | Loop


@dataclass(frozen=True)
class Output:
    """A returned tensor, or a mutable argument: its name, and the line that made its values."""

    name: str
    opcode: str


@dataclass(frozen=True)
class Program:
    """A whole kernel with its inputs, machine and grid; what both modes run."""

    inputs: tuple[Input, ...]
    body: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    """The returned tensors."""
    mutated: tuple[Output, ...] = ()
    """The mutable arguments."""
    machine: str = "trn2"
    grid: tuple[int, ...] = ()
    dialect: str = "classic"
    name: str = field(default="kernel", repr=False)

    @property
    def statements(self) -> int:
        """Return the number of statements in one launch, counting each iteration of loops."""
        instances = int(np.prod(self.grid)) if self.grid else 1
        return instances * sum(statement.statements() for statement in self.body)

    def kernel_source(self) -> str:
        """The kernel's text, without imports."""
        lines = [line for statement in self.body for line in statement.lines()]
        lines.append(
            f"return {', '.join(output.name for output in self.outputs)}".rstrip()
        )
        classic = self.dialect == "classic"
        parameters = [each.parameter if classic else each.name for each in self.inputs]
        head = f"@nki.jit\ndef {self.name}({', '.join(parameters)}):\n"
        return head + textwrap.indent("\n".join(lines), "    ") + "\n"

    def script(self) -> str:
        """The whole case as a script: paste it into a file and run it."""
        arguments = ",\n    ".join(each.source() for each in self.inputs)
        return (
            "from difftest.simulator import MACHINES, launch\n"
            "from difftest.simulator.entry.install import embedded\n\n"
            "embedded().install()\n"
            + HEADERS[self.dialect]
            + "\n"
            + self.kernel_source()
            + "\n"
            f"arguments = [\n    {arguments}\n]\n"
            "for plain in (False, True):\n"
            "    arrays = [array.copy() for array in arguments]\n"
            f"    result = launch({self.name}, arrays, grid={self.grid}, "
            f'machine=MACHINES["{self.machine}"], plain=plain)\n'
            "    print(result.outputs, result.unwritten)\n"
            + ("    print(arrays)\n" if self.mutated else "")
        )

    def compiled(self) -> CompiledKernel:
        """The kernel as a function; its text is registered in ``linecache`` until it is closed."""
        return CompiledKernel(
            HEADERS[self.dialect] + "\n" + self.kernel_source(), self.name
        )

    @property
    def machine_record(self) -> Any:
        return MACHINES[self.machine]


class CompiledKernel:
    """A kernel made from text, in a ``with`` that takes its lines out of ``linecache`` again."""

    def __init__(self, source: str, name: str) -> None:
        self.source = source
        self.name = name
        self.file = f"{DRAWN} {hashlib.sha256(source.encode()).hexdigest()[:12]}>"

    def __enter__(self) -> Callable[..., Any]:
        lines = self.source.splitlines(keepends=True)
        linecache.cache[self.file] = (len(self.source), None, lines, self.file)
        namespace: dict[str, Any] = {}
        with embedded():
            exec(compile(self.source, self.file, "exec"), namespace)
        kernel: Callable[..., Any] = namespace[self.name]
        return kernel

    def __exit__(self, *error: object) -> None:
        linecache.cache.pop(self.file, None)

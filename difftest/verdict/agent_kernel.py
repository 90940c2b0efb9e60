"""A kernel and a reference given as text, as files that the commands take."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TEST = """

from difftest import kernel_test
from difftest.harness.spec import Input
from candidate import {name}


@kernel_test(kernel={name}, reference=reference, domain={{}}, inputs={{{inputs}}})
def test_candidate(case):
    case.check()
"""


class AgentKernelError(Exception):
    """A text that is no kernel, no reference, or does not fit its inputs."""


class AgentKernel:
    """The source of a kernel, and a ``shape`` and a ``dtype`` of each input.

    Raises
    ------
    AgentKernelError : the text is no Python, lacks the kernel, or takes fewer inputs.
    """

    def __init__(self, kernel: str, name: str, specs: Sequence[Mapping[str, Any]]) -> None:
        self.kernel, self.name = kernel, name
        function = _function(kernel, name, "kernel_source")
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if not specs or len(specs) > len(names):
            raise AgentKernelError(
                f"{name} takes {len(names)} arguments; got {len(specs)} input_specs"
            )
        self.inputs = {name: _checked(one) for name, one in zip(names, specs, strict=False)}

    def test(self, reference: str) -> str:
        """The file of a kernel test by the NumPy function ``reference`` of this source."""
        _function(reference, "reference", "reference_source")
        if re.search(r"^\s*(import|from)\s+torch\b", reference, re.MULTILINE):
            raise AgentKernelError(
                "reference_source imports torch; here `reference` takes and returns NumPy arrays: "
                "write it in NumPy"
            )
        inputs = ", ".join(
            f'"{name}": Input("{" ".join(map(str, shape))}", dtype="{dtype}")'
            for name, (shape, dtype) in self.inputs.items()
        )
        return reference + TEST.format(name=self.name, inputs=inputs)

    def written(self, folder: Path, reference: str | None) -> list[str]:
        """Write the kernel's file, and the test's; how a command names both, or the inputs."""
        (folder / "candidate.py").write_text(self.kernel, "utf-8")
        place = f"candidate.py:{self.name}"
        if reference is not None:
            (folder / "test_candidate.py").write_text(self.test(reference), "utf-8")
            return ["--", place, "test_candidate.py::test_candidate"]
        shapes = [f"--shape={','.join(map(str, shape))}" for shape, _ in self.inputs.values()]
        return [*shapes, *(f"--dtype={dtype}" for _, dtype in self.inputs.values()), "--", place]


def _function(text: str, name: str, what: str) -> ast.FunctionDef:
    """The function of this name."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise AgentKernelError(f"{what}, line {error.lineno}: {error.msg}") from None
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    for one in functions:
        if one.name == name:
            return one
    has = ", ".join(one.name for one in functions) or "none"
    raise AgentKernelError(f"{what} has no function {name}; its functions: {has}")


def _checked(spec: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    shape, dtype = spec.get("shape"), spec.get("dtype")
    sizes = shape if isinstance(shape, list | tuple) else ()
    if not sizes or not all(type(one) is int and one > 0 for one in sizes):
        raise AgentKernelError(f"a shape is a list of sizes from 1 up; got {shape!r}")
    if not isinstance(dtype, str) or not dtype.isidentifier():
        raise AgentKernelError(f'a dtype is a name such as "float32"; got {dtype!r}')
    return tuple(sizes), dtype

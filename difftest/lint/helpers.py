"""Functions of a kernel's module that the kernel never reaches."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from difftest.analysis.finding import Finding, Severity
from difftest.simulator.trace import Location


def unused_helpers(kernel: Callable[..., Any]) -> list[Finding]:
    """A finding for each function of the kernel's module that nothing it calls refers to.

    Names are followed from the kernel on; other kernels of the module are taken as ways in too.
    Without source code there is nothing to look at: the list is empty.
    """
    function = inspect.unwrap(kernel)
    module = inspect.getmodule(function)
    file = inspect.getsourcefile(function)
    if module is None or file is None:
        return []
    tree = ast.parse(inspect.getsource(module))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reached = {function.__name__} | {
        name for name, node in functions.items() if node.decorator_list
    }
    frontier = list(reached)
    while frontier:
        node = functions.get(frontier.pop())
        if node is None:
            continue
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - reached
        reached |= names
        frontier += names
    return [
        Finding(
            id="unused-helper",
            severity=Severity.NOTE,
            locations=(Location(file, node.lineno),),
            happened=f"{name} is defined and never called by the module's kernels",
            rule="a kernel's module holds what its kernels use",
            remedy="call it where the kernel does the same by hand, or remove it",
        )
        for name, node in functions.items()
        if name not in reached
    ]

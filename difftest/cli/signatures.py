"""The arguments of each function of NKI, from the stubs and the rules of instructions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache

import ml_dtypes

from difftest.simulator.dtypes import (
    FLOAT8_E8M0FNU,
    NAMES,
    NKI_NAMES,
    TFLOAT32,
    is_float,
)
from difftest.simulator.frontend.levels import LIFETIMES
from difftest.simulator.instructions.record import Instruction
from difftest.simulator.instructions.rules import float32_operands
from difftest.simulator.machine import MACHINES, TRN2
from difftest.support.choices import RELEASES
from difftest.tools.api.documented import (
    CLASSIC,
    TODAY,
    DocumentedName,
    documented_names,
)
from difftest.tools.api.markdown import every_instruction, role_text
from difftest.tools.lint.stubs import stub_files

_ALIASES = {"nki.isa": "nisa", "nki.language": "nl", "nki.collectives": "ncc"}


def _limit(size: str) -> str:
    values = [
        f"{getattr(machine, size)} on {name}" for name, machine in MACHINES.items()
    ]
    return f"limit `{size}`: {', '.join(values)}"


LIMITS = {
    size: _limit(size) for size in asdict(TRN2) if size not in ("name", "nc_version")
}
"""A line for each limit of the machines, by its name in the records of instructions."""
_IN_FLOAT32 = "; a tile of float32 where its operator is arithmetic"


@cache
def signatures() -> dict[str, list[str]]:
    """Return the lines about each function of both dialects, by name (``nki.isa.activation``).

    The first line is the signature, the second the summary; others are facts about operands.
    """
    documented = {
        f"{entry.dialect.package}{entry.module}.{entry.name}": entry
        for entry in documented_names(CLASSIC) + documented_names(TODAY)
    }
    pages = {}
    for name, function in _stub_functions():
        parameters = ast.unparse(function.args).replace(": Any", "")
        summary = (ast.get_docstring(function) or "").replace("``", "`")
        lines = [f"{name}({parameters})", summary]
        if page := documented.get(name):
            lines += [*_known(page), *_levels(name), f"- more: {page.url}"]
        pages[name] = lines
    return pages


def _stub_functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions in the stubs of both dialects, with their names (``nki.isa.iota``)."""
    for file, text in stub_files().items():
        path, suffix, _ = file.replace("-stubs", "").partition(".pyi")
        if not suffix:
            continue
        module = path.removesuffix("/__init__").replace("/", ".")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{module}.{node.name}", node


def _known(page: DocumentedName) -> list[str]:
    """Return lines about the operands of each instruction on a page, in the page's dialect."""
    lines: list[str] = []
    dialect = "nki" if page.dialect is TODAY else "classic"
    for record in every_instruction().values():
        if page.page in record.pages:
            lines += _operands(record, dialect)
    return lines


def _operands(record: Instruction, dialect: str) -> Iterator[str]:
    """Yield the lines about the operands and limits of an instruction."""
    engines = [own.value for own in record.engines if own.value != "unknown"]
    yield f"- instruction {record.name}, on {', '.join(engines)}"
    floats = float32_operands(record.only.get(dialect, ()))
    for role in record.operands:
        limit = _IN_FLOAT32 if role.name in floats else ""
        yield f"  - {role_text(role)}{limit}"
    for role in record.destinations:
        yield f"  - to {role_text(role)}"
    for name, text in LIMITS.items():
        if name in record.limits:
            yield f"  - {text}"


def _levels(name: str) -> Iterator[str]:
    """Yield the levels of NKI that have a function of the current dialect, or its arguments."""
    module, _, function = name.rpartition(".")
    called = f"{_ALIASES.get(module)}.{function}"
    for use, (since, ended, instead) in LIFETIMES.items():
        if use == called or use.startswith((f"{called}(", f"{called} ")):
            if ended:
                when = f"until NKI {ended}"
            else:
                when = f"since NKI {since} (SDK 2.{RELEASES[since]})"
            yield f"- `{use}`: {when}; else {instead}"


def explained_name(what: str) -> str:
    """Return the text about a function, such as ``nisa.activation``; empty for an unknown name."""
    words = what.replace("nisa.", "isa.").replace("nl.", "language.").split(".")
    if words[-1] in NKI_NAMES and set(words[:-1]) <= {"nki", "neuronxcc", "language"}:
        return explained_dtype(words[-1])
    named = [name for name in signatures() if set(words) <= set(name.split("."))]
    last = [signatures()[name] for name in named if name.endswith(f".{words[-1]}")]
    return "\n\n".join("\n".join(filter(None, lines)) for lines in last)


def explained_dtype(name: str) -> str:
    """Return the text about a dtype: its size, its range, and the dialects that have it."""
    dtype = NKI_NAMES[name]
    lines = [f"nki.language.{name}: a dtype of {dtype.itemsize} bytes"]
    if dtype.names:
        lines.append(
            "- packed: four elements of an MX tensor (nisa.quantize_mx, nisa.nc_matmul_mx)"
        )
    elif is_float(dtype) and dtype != TFLOAT32:
        info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        lines.append(
            f"- largest {float(info.max):g}, smallest normal {float(info.smallest_normal):g}"
        )
    elif dtype == FLOAT8_E8M0FNU:
        lines.append(
            "- a power of two from 2**-127 to 2**127: the scale of an MX group"
        )
    dialects = "both dialects" if name in NAMES else "`import nki` alone"
    lines.append(f"- of {dialects}")
    for page in documented_names(TODAY) + documented_names(CLASSIC):
        if page.name == name:
            lines.append(f"- more: {page.url}")
            break
    return "\n".join(lines)


def signature_pages() -> dict[str, str]:
    """Return a page of functions for each module, in Markdown, by the page's name."""
    pages: dict[str, str] = {}
    for name, (head, says, *lines) in sorted(signatures().items()):
        module, _, last = name.rpartition(".")
        page = f"signatures-{module.replace('.', '-')}"
        pages.setdefault(page, f"---\norphan: true\n---\n\n# Signatures of {module}\n")
        rest = "\n".join(lines)
        pages[page] += f"\n## {last}\n\n```python\n{head}\n```\n\n{says}\n\n{rest}\n"
    return pages

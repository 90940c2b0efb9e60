"""Generate the page of the supported API from documented names and instruction records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby

from difftest.simulator.dtypes import FLOATS, INTEGERS, dtype_name
from difftest.simulator.instructions import every_record
from difftest.simulator.instructions.record import (
    INSTRUCTIONS,
    Instruction,
    OperandKind,
    Role,
)
from difftest.simulator.machine import TRN2
from difftest.simulator.trace import Engine
from difftest.support.markdown import table_lines
from difftest.timing.cost_model import cost_evidence
from difftest.timing.evidence import Evidence
from difftest.tools.api.documented import (
    CLASSIC,
    TODAY,
    Dialect,
    DocumentedName,
    SupportState,
    documented_names,
    support_states,
)

COMMAND = "difftest api > docs/reference/generated/api.md"
_INTRODUCTION = f"""\
# The supported API

This page lists every name that AWS documents, and whether the embedded simulator models it. The
classic dialect is `neuronxcc.nki`, `.language` and `.isa` at tag {CLASSIC.tag}. The current dialect
is `nki`, `.language`, `.isa` and `.collectives` at tag {TODAY.tag}. The page is generated from the
records of the instructions (`{COMMAND}`); a test fails when it is stale.

- **modelled**: the name works as documented. An argument that is not modelled raises.
- **raises**: using the name raises a `NotModelledError`.
- **missing**: the simulator lacks the name.
"""
_INSTRUCTIONS = """\
## Instructions

This table lists the operands and destinations of each instruction by role. A role accepts \
tiles in the listed buffers and dtypes, or a number if listed; an optional role ends in `?`. \
Rules between operands are in the instruction's module. The last column is the evidence of \
its cost in the timing model on trn2, by engine: *measured* on a device, *documented* by \
AWS, *assumed*, or *none*: a prediction then names the instruction instead of a total. If \
variants of an operand differ, each class is named.
"""


def api_page() -> str:
    """Return the whole page as Markdown."""
    parts = [
        _INTRODUCTION,
        _summary_table(),
        *_name_tables(CLASSIC),
        *_name_tables(TODAY),
    ]
    head = ("instruction", "engines", "operands", "destinations", "options", "cost")
    records = (
        _instruction_row(record) for _, record in sorted(every_instruction().items())
    )
    return "\n".join([*parts, _INSTRUCTIONS, _table(head, records)])


@cache
def every_instruction() -> dict[str, Instruction]:
    """Return all instruction records by name, and load the modules that define them."""
    every_record()
    return dict(INSTRUCTIONS)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"{line}\n" for line in table_lines(head, rows))


def _summary_table() -> str:
    """Return the table of the numbers of names by module and state."""
    rows = []
    for dialect in (CLASSIC, TODAY):
        counts = Counter(
            (name.module, state) for name, state in support_states(dialect).items()
        )
        modules = list(dict.fromkeys(name.module for name in documented_names(dialect)))
        for module in modules:
            numbers = (str(counts[module, state]) for state in SupportState)
            rows.append((f"`{dialect.package}{module}`", *numbers))
        total = (
            str(sum(counts[module, state] for module in modules))
            for state in SupportState
        )
        rows.append((f"all of {dialect.title}", *total))
    return _table(("module", *(state.value for state in SupportState)), rows)


def _name_tables(dialect: Dialect) -> Iterator[str]:
    """Yield the tables of a dialect's documented names."""
    names = documented_names(dialect)
    for module, of_module in groupby(names, lambda name: name.module):
        yield f"## {dialect.package}{module}\n"
        for section, group in groupby(of_module, lambda name: name.section):
            yield f"### {section}\n"
            rows = (
                (
                    f"[`{entry.name}`]({entry.url})",
                    support_states(dialect)[entry].value,
                    _issued(entry),
                )
                for entry in group
            )
            yield _table(("name", "", "instructions"), rows)


def _issued(name: DocumentedName) -> str:
    """Return links to the instructions that cite the name's page."""
    records = [
        record for record in every_instruction().values() if name.page in record.pages
    ]
    return ", ".join(f"[`{record.name}`](#{record.name})" for record in records)


# -- instructions ----------------------------------------------------------------------------------


def _instruction_row(record: Instruction) -> tuple[str, ...]:
    """Return the row of an instruction."""
    engines = [engine for engine in record.engines if engine is not Engine.UNKNOWN]
    prose = record.summary.replace("``", "`").replace("|", "\\|")
    return (
        f'<a id="{record.name}"></a>`{record.name}`<br>{prose}',
        ", ".join(engine.value for engine in engines),
        "<br>".join(map(role_text, record.operands)),
        "<br>".join(map(role_text, record.destinations)),
        ", ".join(f"`{option}`" for option in record.options),
        "<br>".join(f"{engine.value}: {_cost(record, engine)}" for engine in engines),
    )


def role_text(role: Role) -> str:
    """Return the accepted buffers and dtypes of an operand as Markdown."""
    name = f"`{role.name}{'?' if role.optional else ''}`"
    if role.takes in (OperandKind.NUMBER, OperandKind.INDEX):
        return f"{name}: {role.takes.value}"
    kind = "" if role.takes is OperandKind.TILE else f"{role.takes.value}, "
    buffers = dict.fromkeys(
        "hbm" if buffer.is_hbm else buffer.value for buffer in role.buffers
    )
    return f"{name}: {kind}{'/'.join(buffers)}, {_dtypes_text(role)}"


def _dtypes_text(role: Role) -> str:
    """Return the accepted dtypes of an operand in words."""
    if role.dtypes is None:
        return "any dtype"
    left = list(role.dtypes)
    parts = []
    for group, text in ((FLOATS, "floats"), (INTEGERS, "integers")):
        if set(group) <= set(left):
            parts.append(text)
            left = [entry for entry in left if entry not in group]
    return ", ".join([*parts, *map(dtype_name, left)])


def _cost(record: Instruction, engine: Engine) -> str:
    kinds = cost_evidence(record.name, record.purpose, engine, TRN2)
    names = [evidence.value for evidence in Evidence if evidence in kinds]
    return ", ".join(names) or "none"

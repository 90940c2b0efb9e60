"""What an error of the runtime or the compiler means: whose fault it is, and what to do about it.

The codes are rows of ``faults.csv``. Sources, all public AWS Neuron documentation at tag v2.32.0:
NRT codes from ``neuron-runtime/api/nrt_status.rst``, their causes from
``neuron-runtime/nrtpy/errors.rst`` and ``nrtpy-troubleshooting.rst``; NCC codes from
``compiler/error-codes/index.rst``, those that a kernel by itself can meet.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Blame(Enum):
    """Whose fault an error is."""

    KERNEL = "kernel"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Fault:
    """An error code that was recognised; ``number`` is None for one of the compiler."""

    name: str
    number: int | None
    blame: Blame
    hint: str

    @property
    def code(self) -> str:
        return self.name if self.number is None else f"{self.name}({self.number})"

    def __str__(self) -> str:
        return f"{self.code} ({self.blame.value}): {self.hint}"


with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    FAULTS = {
        name: Fault(name, int(number or 0) or None, Blame(blame), hint)
        for name, number, blame, hint in [*csv.reader(_file)][1:]
    }
"""Name of a status or an error code -> what it means."""
_BY_NUMBER = {fault.number: fault for fault in FAULTS.values() if fault.number is not None}
_NCC_PAGE = "see AWS Neuron documentation, Neuron Compiler Error Codes"

_NRT_NAME = re.compile(r"\bNRT_[A-Z_]+\b")
_NRT_NUMBER = re.compile(r"\b(?:NRT|nrt_\w+|status|ret(?:urned)?)\b[^\n\d]{0,24}?\b(\d{1,4})\b")
_NCC_CODE = re.compile(r"\bNCC_[A-Z]+\d+\b")


def find_fault(text: str) -> Fault | None:
    """The first NRT or NCC code in an error's text or a log; None if there is none.

    The name of an NRT status decides, for public pages show numbers that belong to another name;
    a number alone is looked up.
    """
    for name in _NRT_NAME.findall(text):
        if name in FAULTS:
            return FAULTS[name]
    compiler = _NCC_CODE.search(text)
    if compiler:
        unknown = Fault(compiler[0], None, Blame.KERNEL, _NCC_PAGE)
        return FAULTS.get(compiler[0], unknown)
    numbers = (int(match[1]) for match in _NRT_NUMBER.finditer(text))
    return next((_BY_NUMBER[number] for number in numbers if number in _BY_NUMBER), None)

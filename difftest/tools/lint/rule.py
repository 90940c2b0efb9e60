"""What a rule of the linter is: an id that stays, the SDKs where it holds, what it rests on.

Source of the SDKs: release notes of NKI at v2.26.0 to v2.32.0 (``release-notes/components``), the
migration guide (``nki/migration/index.rst`` at v2.32.0), and the pages of v2.33 for its default.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from difftest.analysis.finding import Finding
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Event, Trace
from difftest.support.choices import RELEASES


class Frontend(Enum):
    """What makes instructions of a kernel's Python."""

    CLASSIC = "the classic tracer"
    """``neuronxcc.nki``: runs the kernel, SDK 2.21 to 2.28."""
    PARSER = "the parser"
    """``nki`` 0.2 to 0.6: reads the kernel's source, and knows a part of Python."""
    TRACER = "the tracer"
    """``nki`` 0.7: runs the kernel."""


PARSER = frozenset({Frontend.PARSER})
TODAYS = frozenset({Frontend.PARSER, Frontend.TRACER})


class Release(NamedTuple):
    """One release of the Neuron SDK.

    ``level`` is its NKI's for kernels of today's dialect, None where there was none.
    """

    version: str
    level: str | None
    frontend: Frontend

    @property
    def minor(self) -> int:
        """The second part of its version, by which releases are in order."""
        return int(self.version.partition(".")[2])


_LEVELS = {minor: level for level, minor in RELEASES.items()}
_LAST = max(_LEVELS)


def _sdk(minor: int) -> Release:
    level = _LEVELS.get(minor)
    later = Frontend.TRACER if minor >= 33 else Frontend.PARSER
    return Release(f"2.{minor}", level, Frontend.CLASSIC if level is None else later)


SDKS = {f"2.{minor}": _sdk(minor) for minor in range(21, _LAST + 1)}
"""By version, the oldest first."""
LAST_CLASSIC = SDKS["2.27"]
"""The last that compiles a file of the classic dialect as its documentation says."""
NEWEST = SDKS[f"2.{_LAST}"]
TARGETS = ("trn1", "trn2", "trn3")
"""The machines that a compiler can be asked to compile for."""


def of_level(level: str | None) -> Release | None:
    """The SDK that has a level of NKI; None for no level, or one that no SDK has."""
    return next((sdk for sdk in SDKS.values() if level is not None and sdk.level == level), None)


def sdk_of(trace: Trace, level: str | None = None) -> Release:
    """The SDK of a level of NKI; else the newest of the kernel's dialect."""
    return of_level(level) or (LAST_CLASSIC if trace.dialect == "classic" else NEWEST)


PAGES = Path(__file__).with_name("pages")


class Group(Enum):
    """What a rule is about; :mod:`difftest.tools.lint.files` says what comes of each."""

    CORRECTNESS = "correctness"
    """The compiler refuses it, or a device gives another result."""
    PORTABILITY = "portability"
    """Some generations or some SDKs refuse it."""
    UPGRADE = "upgrade"
    """It is gone, or means something else, in a newer SDK."""
    PERFORMANCE = "performance"
    """It works, and costs more than it must."""


class Confidence(Enum):
    """How a rule is known."""

    DOCUMENTED = "documented"
    """A page of AWS's documentation says so."""
    RECORDED = "recorded"
    """Somebody published the compiler's or the device's answer."""
    INFERRED = "inferred"
    """It follows from what is documented or recorded."""
    DISPUTED = "disputed"
    """A page of AWS's documentation refuses it, and code that AWS released does it."""
    ANNOUNCED = "announced"
    """A page of AWS's documentation says that it will be refused."""


Refusal = tuple[ast.AST, str]
"""The node that breaks a rule, and what it does, in words."""
Check = Callable[[Any, Any], Iterable[Refusal]]
"""Looks at a node of one of the rule's kinds, in a
:class:`~difftest.tools.lint.source.RuleContext`."""

Breach = tuple[Event | Allocation | Finding, str]
"""The event, tensor or finding that breaks a rule of traces, and what it does, in words."""
Reader = Callable[[Trace, Machine], Iterable[Breach]]
"""Reads a trace of a launch on a machine."""


def _nothing(*_: Any) -> Iterable[Any]:
    return ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule:
    """One rule: what finds it, and where it holds. Its words are those of its page.

    A page begins with the id and a title: what a kernel does, in a few words. Then it says the
    rule in one sentence, the remedy (it was tried on the simulator), how the rule is known, and the
    public pages, threads and records that it rests on. Where they are known, the compiler's own
    text follows, and what our simulator and, by its documentation, AWS's do. A wrong and a right
    kernel end it.

    Attributes
    ----------
    id : three capitals and three digits. It never changes its meaning.
    nodes : of a syntax tree, the kinds that ``check`` looks at; none for a rule of traces.
    frontends : the ones that refuse it.
    since : the first SDK that refuses it; None for all of its frontends.
    targets : the machines that refuse it; none for all.
    """

    id: str
    group: Group
    check: Check = _nothing
    reader: Reader = _nothing
    nodes: tuple[type[ast.AST], ...] = ()
    frontends: frozenset[Frontend] = frozenset(Frontend)
    since: str | None = None
    targets: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def page(self) -> str:
        """Its page, as Markdown."""
        return (PAGES / f"{self.id}.md").read_text(encoding="utf-8")

    @cached_property
    def words(self) -> dict[str, str]:
        """What its page says first: ``Rule``, ``Remedy``, ``Known``, ``Sources`` and others."""
        return dict(
            re.findall(r"^- ([\w' ]+): (.*)$", self.page.partition("\n\n")[2], re.MULTILINE)
        )

    @property
    def title(self) -> str:
        """What a kernel does that breaks it, in a few words."""
        return self.page.partition("\n")[0].partition(": ")[2]

    @property
    def rule(self) -> str:
        """What holds, in one sentence."""
        return self.words["Rule"]

    @property
    def remedy(self) -> str:
        """What to write instead."""
        return self.words["Remedy"]

    @property
    def confidence(self) -> Confidence:
        """How it is known."""
        return Confidence(self.words["Known"])

    @property
    def reads_traces(self) -> bool:
        """Whether it looks at what a kernel does, and not at its source."""
        return self.reader is not _nothing

    def holds(self, sdk: Release, target: str | None) -> bool:
        """Whether an SDK refuses it for a machine; None for any."""
        return (
            sdk.frontend in self.frontends
            and (self.since is None or SDKS[self.since].minor <= sdk.minor)
            and (not self.targets or target is None or target in self.targets)
        )


RULES: dict[str, Rule] = {}
"""By id. A module of rules enters them when it is imported."""


def rule(id: str, **data: Any) -> Callable[[Check], Check]:
    """Enter a rule whose check is the function below.

    Raises
    ------
    ValueError : there is a rule with this id.
    """
    return partial(_enter, "check", id, data)


def trace_rule(id: str, **data: Any) -> Callable[[Reader], Reader]:
    """Enter a rule whose reader of traces is the function below; raises as :func:`rule`."""
    return partial(_enter, "reader", id, data)


def _enter(kind: str, id: str, data: dict[str, Any], function: Any) -> Any:
    if id in RULES:
        raise ValueError(f"two rules have the id {id}")
    RULES[id] = Rule(id=id, **{kind: function}, **data)
    return function

"""Rules of the linter: a permanent id, the SDKs of the rule, and its sources.

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
from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.analysis.finding import Finding
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Event, Trace
from difftest.support.choices import RELEASES

if TYPE_CHECKING:
    from difftest.tools.lint.source import RuleContext


class Frontend(Enum):
    """The compiler stage that turns a kernel's Python into instructions."""

    CLASSIC = "the classic tracer"
    """``neuronxcc.nki``, SDK 2.21 to 2.28. It runs the kernel."""
    PARSER = "the parser"
    """``nki`` 0.2 to 0.6. It parses the kernel's source and supports a subset of Python."""
    TRACER = "the tracer"
    """``nki`` 0.7. It runs the kernel."""


PARSER = frozenset({Frontend.PARSER})
TODAYS = frozenset({Frontend.PARSER, Frontend.TRACER})
"""The frontends of the current dialect."""


class Release(NamedTuple):
    """A release of the Neuron SDK.

    ``level`` is the NKI level for kernels of the current dialect. None if the release has none.
    """

    version: str
    level: str | None
    frontend: Frontend

    @property
    def minor(self) -> int:
        """The second part of the version. It orders the releases."""
        return int(self.version.partition(".")[2])


_LEVELS = {minor: level for level, minor in RELEASES.items()}
_LAST = max(_LEVELS)


def _sdk(minor: int) -> Release:
    level = _LEVELS.get(minor)
    later = Frontend.TRACER if minor >= 33 else Frontend.PARSER
    return Release(f"2.{minor}", level, Frontend.CLASSIC if level is None else later)


SDKS = {f"2.{minor}": _sdk(minor) for minor in range(21, _LAST + 1)}
"""SDK releases by version, oldest first."""
LAST_CLASSIC = SDKS["2.27"]
"""The last SDK that compiles classic files as documented."""
NEWEST = SDKS[f"2.{_LAST}"]
TARGETS = ("trn1", "trn2", "trn3")
"""The machines that the compiler supports as targets."""


def of_level(level: str | None) -> Release | None:
    """Return the SDK of an NKI level; None without a level, or if no SDK has it."""
    if level is None:
        return None
    return next((sdk for sdk in SDKS.values() if sdk.level == level), None)


def sdk_of(trace: Trace, level: str | None = None) -> Release:
    """Return the SDK of an NKI level, or else the newest SDK of the kernel's dialect."""
    return of_level(level) or (LAST_CLASSIC if trace.dialect == "classic" else NEWEST)


PAGES = Path(__file__).with_name("pages")


class Group(Enum):
    """The subject of a rule. :mod:`difftest.tools.lint.files` gives the default levels."""

    CORRECTNESS = "correctness"
    """The compiler rejects the code, or a device computes another result."""
    PORTABILITY = "portability"
    """Some device generations or SDKs reject the code."""
    UPGRADE = "upgrade"
    """A newer SDK has removed or changed the feature."""
    PERFORMANCE = "performance"
    """The code works, but takes more time than necessary."""


class Confidence(Enum):
    """The kind of evidence for a rule."""

    DOCUMENTED = "documented"
    """AWS documents the rule."""
    RECORDED = "recorded"
    """A public record shows the answer of the compiler or the device."""
    INFERRED = "inferred"
    """The rule follows from documentation or records."""
    DISPUTED = "disputed"
    """AWS's documentation excludes the code, but kernels that AWS released contain it."""
    ANNOUNCED = "announced"
    """AWS's documentation announces that the code will be rejected."""


Refusal = tuple[ast.AST, str]
"""The node that breaks a rule, and a description of the violation."""
Check = Callable[[Any, "RuleContext"], Iterable[Refusal]]
"""A function of a node and its :class:`~difftest.tools.lint.source.RuleContext`.

It yields the refusals at a node of one of the rule's kinds.
"""

Breach = tuple[Event | Allocation | Finding, str]
"""The event, tensor or finding that breaks a trace rule, and a description of the violation."""
Reader = Callable[[Trace, Machine], Iterable[Breach]]
"""A function of a trace and its machine that yields the breaches of a trace rule."""


def _nothing(*_: Any) -> Iterable[Any]:
    return ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule:
    """A rule of the linter: its check and the SDKs and machines that it covers.

    The rule's page holds its texts. It contains, in this order:

    - the id and a title, which names the violation;
    - the rule, the remedy (tested on the simulator), the kind of evidence, and public sources;
    - if known, the compiler's message, and the behavior of this simulator and of AWS's;
    - a wrong and a right kernel.

    Attributes
    ----------
    id : three capitals and three digits. The meaning of an id never changes.
    nodes : the kinds of syntax nodes that ``check`` takes. Empty for a trace rule.
    frontends : the frontends that reject the code.
    since : the first SDK that rejects the code. None for all SDKs of its frontends.
    targets : the machines that reject the code. Empty for all machines.
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
        """The rule's page as Markdown."""
        return (PAGES / f"{self.id}.md").read_text(encoding="utf-8")

    @cached_property
    def words(self) -> dict[str, str]:
        """The fields at the top of the page: ``Rule``, ``Remedy``, ``Known``, ``Sources`` etc."""
        return dict(
            re.findall(
                r"^- ([\w' ]+): (.*)$", self.page.partition("\n\n")[2], re.MULTILINE
            )
        )

    @property
    def title(self) -> str:
        """A short description of the violation."""
        return self.page.partition("\n")[0].partition(": ")[2]

    @property
    def rule(self) -> str:
        """The rule in one sentence."""
        return self.words["Rule"]

    @property
    def remedy(self) -> str:
        """The code to write instead."""
        return self.words["Remedy"]

    @property
    def confidence(self) -> Confidence:
        """The kind of evidence for the rule."""
        return Confidence(self.words["Known"])

    @property
    def reads_traces(self) -> bool:
        """True for a rule that reads a trace instead of source code."""
        return self.reader is not _nothing

    def holds(self, sdk: Release, target: str | None) -> bool:
        """Return whether the rule applies to an SDK and a machine; None for any machine."""
        if sdk.frontend not in self.frontends:
            return False
        if self.since is not None and sdk.minor < SDKS[self.since].minor:
            return False
        return not self.targets or target is None or target in self.targets


RULES: dict[str, Rule] = {}
"""Registered rules by id. Importing a module of rules registers its rules."""


def rule(id: str, **data: Any) -> Callable[[Check], Check]:
    """Register the decorated function as the check of a rule.

    Raises
    ------
    ValueError : a rule with this id exists.
    """
    return partial(_enter, "check", id, data)


def trace_rule(id: str, **data: Any) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of a trace rule.

    Raises
    ------
    ValueError : a rule with this id exists.
    """
    return partial(_enter, "reader", id, data)


def _enter(kind: str, id: str, data: dict[str, Any], function: Any) -> Any:
    if id in RULES:
        raise ValueError(f"two rules have the id {id}")
    RULES[id] = Rule(id=id, **{kind: function}, **data)
    return function

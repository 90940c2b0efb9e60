"""The request of a pytest session: command line options, and the ini keys for them.

The module imports only pytest and the standard library, because every session reads it.

The options yield to others: they are declared after those of plugins and conftests, and an option
whose name is taken is not declared. But the modules for kernels must be installed before conftests
import kernels. So the command line is read twice. The first time is before conftests, without their
options. The second time is after them, and that request counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from difftest.support.choices import (
    LEVELS,
    PAGES,
    SIMULATORS,
    STRICTNESSES,
    install_hint,
)

if TYPE_CHECKING:
    from difftest.plugin.dialects import LeftOut
    from difftest.plugin.launches import LaunchCounts
    from difftest.testing.harness.runner import Runner


class SimulateAction(argparse.Action):
    """``--simulate`` and ``--simulate=CHOICE``, each an option string without an argument.

    An optional argument (``nargs="?"``) would swallow the path in ``pytest --simulate tests``.
    """

    def __call__(
        self,
        parser: Any,
        namespace: argparse.Namespace,
        values: object,
        word: str | None = None,
    ) -> None:
        """Store the text after the equals sign, or "auto"."""
        _, _, choice = (word or "").partition("=")
        setattr(namespace, self.dest, choice or SIMULATORS[0])


class Option(NamedTuple):
    """A command line option, and the ini key that takes its place.

    Attributes
    ----------
    name : the name on the command line.
    key : the ini key, and the name of the value.
    help : the help of the option.
    accepted : values of the key; empty for any.
    declaration : further arguments for argparse.
    forms : other forms of the name.
    """

    name: str
    key: str
    help: str
    accepted: tuple[str, ...] = ()
    declaration: Mapping[str, Any] = {}
    forms: tuple[str, ...] = ()

    def declare(self, group: Any) -> None:
        """Add the option to pytest's group of options, or to an argparse parser."""
        add = getattr(group, "addoption", None) or group.add_argument
        add(self.name, *self.forms, dest=self.key, help=self.help, **self.declaration)

    @property
    def values(self) -> str:
        """The values of the key, for ``pytest --help``."""
        return ", ".join(self.accepted) or str(self.declaration["metavar"])


_YES = ("yes", "no")
_FLAG = {"action": "store_true"}
SIMULATE = Option(
    "--simulate",
    "difftest_simulate",
    "run kernel tests on a simulator: the Neuron SDK's where it is installed, else the embedded "
    "one; or the one named",
    (*SIMULATORS, "no"),
    {"action": SimulateAction, "nargs": 0},
    tuple(f"--simulate={choice}" for choice in SIMULATORS),
)
DEVICE = Option(
    "--device", "difftest_device", "run kernel tests on a NeuronCore", _YES, _FLAG
)
CASE = Option(
    "--case",
    "difftest_case",
    "run one kernel test on exactly this case, without Hypothesis; a failure prints the line to "
    "use",
    declaration={"metavar": "JSON"},
)
LEVEL = Option(
    "--nki-level",
    "difftest_nki_level",
    "the level of NKI for kernels of `import nki` on the embedded simulator: a missing name raises",
    LEVELS,
    {"choices": LEVELS},
)
STRICTNESS = Option(
    "--nki-strictness",
    "difftest_nki_strictness",
    "which broken rules are warnings and not errors on the embedded simulator",
    STRICTNESSES,
    {"choices": STRICTNESSES},
)
NO_EXACT = Option(
    "--no-exact",
    "difftest_exact",
    "leave out the run without rounding that tells a wrong algorithm from rounding: cases take "
    "less time, and the bound that follows from reduction= of the spec is all there is",
    _YES,
    {"action": "store_const", "const": "no"},
)
REPORT = Option(
    "--difftest-report",
    "difftest_report",
    "write what ran and what came of it: a page (.html), Markdown (.md) or else JSON; on GitHub "
    "also into the step's summary (docs/how-to/report.md)",
    declaration={"metavar": "FILE"},
)
SAVE = Option(
    "--difftest-save",
    "difftest_save",
    "write each failing case into this folder, with the sources that it needs, for difftest replay",
    declaration={"metavar": "DIR"},
)
HAZARDS = Option(
    "--difftest-strict",
    "difftest_strict",
    "hazards that may be wrong on some device fail a kernel test too, and do not only warn "
    "(docs/how-to/find-hazards.md)",
    _YES,
    _FLAG,
)
TIMEOUT = Option(
    "--case-timeout",
    "difftest_case_timeout",
    "stop a kernel or a reference that runs longer on one case, and fail its test",
    declaration={"metavar": "SECONDS"},
)
MEMORY = Option(
    "--case-memory",
    "difftest_case_memory",
    "stop a kernel or a reference that needs more memory for one case, and fail its test (Linux)",
    declaration={"metavar": "MIB"},
)
MUTATE = Option(
    "--difftest-mutate",
    "difftest_mutate",
    "when all tests have passed, plant bugs in the kernels: the session fails if so many drawn "
    "cases of each test miss a bug (docs/how-to/mutate.md)",
    declaration={"metavar": "CASES"},
)
_FREE_FORM = (CASE, REPORT, SAVE, TIMEOUT, MEMORY, MUTATE)
OPTIONS = (SIMULATE, DEVICE, LEVEL, STRICTNESS, NO_EXACT, HAZARDS, *_FREE_FORM)


class Request(NamedTuple):
    """The request of a session.

    Attributes
    ----------
    simulate : a choice of :data:`SIMULATORS`, or None.
    device : whether to run on the device.
    case : the JSON of ``--case``, or None.
    options : the options that chose the backends, to run a case again.
    report : the file of ``--difftest-report``, or None.
    save : the folder of ``--difftest-save``, or None.
    level : a choice of :data:`LEVELS`, or None.
    strictness : a choice of :data:`STRICTNESSES`, or None.
    exact : whether kernels run without rounding too, if their specs allow it.
    strict : whether hazards that are warnings fail a test.
    mutate : the number of cases of each test that must find planted bugs; None for no planted bugs.
    timeout, memory : the limits of a case, seconds and MiB; None for no limit.
    taken : options that others have declared, and whose ini keys are not set.
    case_key : the ini key for a case if another plugin owns ``--case``; else None.
    """

    simulate: str | None
    device: bool
    case: str | None
    options: tuple[str, ...]
    report: str | None = None
    level: str | None = None
    strictness: str | None = None
    exact: bool = True
    strict: bool = False
    taken: tuple[Option, ...] = ()
    case_key: str | None = None
    save: str | None = None
    timeout: float | None = None
    memory: float | None = None
    mutate: float | None = None

    @property
    def wants_backends(self) -> bool:
        """True if the session runs kernel tests."""
        return self.simulate is not None or self.device

    @property
    def backends(self) -> tuple[str | None, bool, str | None, str | None]:
        """The values that select the backends."""
        return self.simulate, self.device, self.level, self.strictness


ASKED = "difftest_request"
"""The attribute of a plugin with its own request, which overrides the command line."""


def add_keys(parser: pytest.Parser) -> None:
    """Declare the ini keys."""
    for option in OPTIONS:
        parser.addini(
            option.key, f"instead of {option.name}: {option.values}", default=""
        )


def add_options(
    parser: pytest.Parser, config: pytest.Config, args: Sequence[str]
) -> None:
    """Declare the options that are free and whose ini key is not set."""
    free = _free(parser)
    options = _options(free, config.known_args_namespace, args)
    group = parser.getgroup("difftest", "kernels against their references (difftest)")
    for option in free:
        is_named = any(word.startswith(option.name) for word in args)
        if is_named or option.key in options or not config.getini(option.key):
            option.declare(group)


def read_request(
    config: pytest.Config, parser: pytest.Parser, args: Sequence[str], *, final: bool
) -> Request:
    """Return the request of a session, from its options and ini keys.

    Parameters
    ----------
    parser : pytest's parser, with the options that others have declared so far.
    args : the command line.
    final : whether conftests have declared their options. Then an option overrides its key. Before,
        a key overrides its option, because the option may belong to another plugin.
    """
    fixed = _plugin_request(config)
    if fixed is not None:
        return fixed
    free = _free(parser)
    keys = _keys(config)
    options = _options(free, config.known_args_namespace, args)
    values = {**keys, **options} if final else {**options, **keys}
    return Request(
        simulate=None if values.get(SIMULATE.key) == "no" else values.get(SIMULATE.key),
        device=values.get(DEVICE.key) in (True, "yes"),
        case=values.get(CASE.key),
        options=(*_words(options), *_overrides(config)),
        report=values.get(REPORT.key),
        level=values.get(LEVEL.key),
        strictness=values.get(STRICTNESS.key),
        exact=values.get(NO_EXACT.key) != "no",
        strict=values.get(HAZARDS.key) in (True, "yes"),
        taken=tuple(
            option
            for option in OPTIONS
            if option not in free and option.key not in keys
        ),
        case_key=None if CASE in free else CASE.key,
        save=values.get(SAVE.key),
        timeout=_amount(TIMEOUT, values),
        memory=_amount(MEMORY, values),
        mutate=_amount(MUTATE, values),
    )


def _plugin_request(config: pytest.Config) -> Request | None:
    """Return the request that a plugin of the session brings, else None."""
    for plugin in config.pluginmanager.get_plugins():
        request = getattr(plugin, ASKED, None)
        if isinstance(request, Request):
            return request
    return None


def _keys(config: pytest.Config) -> dict[str, str]:
    """Return the ini keys that are set; raise a usage error for a value that is not accepted."""
    keys: dict[str, str] = {}
    for option in OPTIONS:
        value = config.getini(option.key)
        if not value:
            continue
        if option.accepted and value not in option.accepted:
            accepted = ", ".join(option.accepted)
            raise pytest.UsageError(f"{option.key} = {value}: accepted are {accepted}")
        keys[option.key] = value
    return keys


def check_request(request: Request) -> None:
    """Reject a case without a backend, and a report that cannot be written; make its folder."""
    if request.case is not None and not request.wants_backends:
        needed = f"{SIMULATE.name} or {DEVICE.name}"
        raise pytest.UsageError(f"{CASE.name} needs a backend: add {needed}")
    if request.report is None:
        return
    from difftest.support.output import check_output, format_write_error

    file = Path(request.report)
    if file.suffix in PAGES:
        lack = install_hint("jinja2", f"{REPORT.name}: a page", "report")
        if lack:
            raise pytest.UsageError(f"{lack}; .json and .md need nothing more")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        check_output(file)
    except OSError as error:
        raise pytest.UsageError(f"{REPORT.name}: {format_write_error(error)}") from None


def taken_line(taken: Sequence[Option]) -> str:
    """Return one line on the options that others have declared."""
    names = ", ".join(option.name for option in taken)
    keys = ", ".join(option.key for option in taken)
    verb = "are" if len(taken) > 1 else "is"
    noun = "keys" if len(taken) > 1 else "key"
    return (
        f"difftest: {names} {verb} declared by another plugin or a conftest and {verb} left to it; "
        f"use the ini {noun} {keys} (also -o {taken[0].key}=…)"
    )


def distribute(
    request: Request, namespace: argparse.Namespace, args: list[str]
) -> None:
    """Set the options of pytest-xdist: no workers for one case, else work stealing.

    A case that does not fit its test is a usage error, and a usage error in a worker crashes
    pytest. Kernel tests take from milliseconds to seconds, and slow ones are neighbours. Equal
    shares would leave one worker with all slow tests. A distribution that the user chose stays.
    """
    chosen = namespace.dist != "no" or getattr(namespace, "distload", False)
    if request.case is not None:
        extra_arguments(args, "-n", "0")
    elif namespace.numprocesses and not chosen:
        extra_arguments(args, "--dist", "worksteal")


def extra_arguments(args: list[str], *words: str) -> None:
    """Add options before the two dashes, if any."""
    end = args.index("--") if "--" in args else len(args)
    args[end:end] = words


def _free(parser: pytest.Parser) -> tuple[Option, ...]:
    """Return the options that no other plugin has declared yet."""
    unknown = _unknown(parser, [option.name for option in OPTIONS])
    return tuple(option for option in OPTIONS if option.name in unknown)


def _unknown(parser: pytest.Parser, names: list[str]) -> list[str]:
    try:
        return parser.parse_known_and_unknown_args(names)[1]
    except pytest.UsageError:  # one takes an argument, and there is none
        return [name for name in names if len(names) > 1 and _unknown(parser, [name])]


def _options(
    options: Iterable[Option], namespace: argparse.Namespace, args: Sequence[str]
) -> dict[str, Any]:
    """Return the given options by key: of this session, or of pytest-xdist for its workers."""
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parsed = argparse.Namespace()
    for option in options:
        setattr(parsed, option.key, getattr(namespace, option.key, None))
        # Declaring all of them takes milliseconds.
        if any(word.startswith(option.name) for word in args):
            option.declare(parser)
    try:
        parser.parse_known_args(list(args), parsed)
    except argparse.ArgumentError:  # pytest itself reports the error
        return {}
    return {
        name: value
        for name, value in vars(parsed).items()
        if value not in (None, False)
    }


def _words(options: Mapping[str, Any]) -> list[str]:
    """Return the options that chose the backends, as written on a command line."""
    words = []
    for option in (SIMULATE, LEVEL, STRICTNESS, TIMEOUT, MEMORY):
        value = options.get(option.key)
        if value:
            word = f"{option.name}={value}"
            words.append(word.removesuffix(f"={SIMULATORS[0]}"))
    for option in (DEVICE, NO_EXACT, HAZARDS):
        if options.get(option.key):
            words.append(option.name)
    return words


def _overrides(config: pytest.Config) -> list[str]:
    """Return ``-o`` for each ini key once: pytest parses the command line several times."""
    others = tuple(f"{option.key}=" for option in (CASE, REPORT, SAVE, MUTATE))
    words: list[str] = []
    for key in dict.fromkeys(config.known_args_namespace.override_ini or ()):
        if key.startswith("difftest_") and not key.startswith(others):
            words += ["-o", key]
    return words


def _amount(option: Option, values: Mapping[str, Any]) -> float | None:
    """Return the number of an option, which must be above 0; None if the option is not set."""
    text = values.get(option.key)
    if text is None:
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = 0
    if not amount > 0:
        raise pytest.UsageError(
            f"{option.name}: received {text}; accepted: a number above 0"
        )
    return min(amount, 1e9)


def is_campaign() -> bool:
    """Return whether HypoFuzz collects this session's tests, to run them after the session."""
    detection = sys.modules.get("hypofuzz.detection")
    return detection is not None and bool(detection.in_hypofuzz_run())


@dataclass
class Session:
    """The plugin's state on ``config.stash``.

    Attributes
    ----------
    runner : None without a backend.
    uncollected : modules left out without a backend.
    mixed : modules that also have other tests.
    stopped : properties of tests without a report.
    workers : the workers of pytest-xdist, which report at their end.
    own : pytest's session; its exit code changes if a report cannot be written.
    left_out : kernels, by backends that do not run them.
    served : backends that run a kernel of the tests.
    ran_again : whether a failing case ran in a process of its own: once a session.
    has_run : whether a kernel test ran in this process.
    launches : the launches of tests that call kernels themselves; None without a simulator.
    """

    request: Request
    runner: Runner | None = None
    uncollected: set[str] = field(default_factory=set)
    mixed: set[str] = field(default_factory=set)
    stopped: list[Any] = field(default_factory=list)
    workers: list[Any] = field(default_factory=list)
    own: pytest.Session | None = None
    left_out: set[LeftOut] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    ran_again: bool = False
    has_run: bool = False
    launches: LaunchCounts | None = None


SESSION = pytest.StashKey[Session]()

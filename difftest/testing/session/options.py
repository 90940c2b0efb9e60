"""The request of a pytest session: command line options, ini keys, and a table of pyproject.toml.

The module imports only pytest and the standard library, because every session reads it.

The short names of options yield to others: they are declared after the options of plugins and
conftests, and a name that is taken is not declared. But the modules for kernels must be installed
before conftests import kernels. So the command line is read twice. The first time is before
conftests, without their options. The second time is after them, and that request counts.
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
from difftest.support.wording import did_you_mean

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
    key : the ini key, and the name of the value.
    names : the names on the command line: ``--difftest-...``, and a short one for some.
    help : the help of the option.
    accepted : values of the key; empty for any.
    declaration : further arguments for argparse.
    choices : values that may follow a name and an equals sign, if the option takes no argument.
    """

    key: str
    names: tuple[str, ...]
    help: str
    accepted: tuple[str, ...] = ()
    declaration: Mapping[str, Any] = {}
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The shortest name."""
        return self.names[-1]

    @property
    def setting(self) -> str:
        """The key of the table ``[tool.difftest]``."""
        return self.key.removeprefix(KEYS)

    def declare(self, group: Any) -> None:
        """Add the option to pytest's group of options, or to an argparse parser."""
        add = getattr(group, "addoption", None) or group.add_argument
        forms = [f"{name}={choice}" for name in self.names for choice in self.choices]
        add(*self.names, *forms, dest=self.key, help=self.help, **self.declaration)

    def is_in(self, args: Sequence[str]) -> bool:
        """Return whether a command line may have the option."""
        return any(word.startswith(self.names) for word in args)

    @property
    def values(self) -> str:
        """The values of the key, for ``pytest --help``."""
        return ", ".join(self.accepted) or str(self.declaration["metavar"])


KEYS = "difftest_"
"""The prefix of the ini keys."""
_YES = ("yes", "no")
_FLAG = {"action": "store_true"}
SIMULATE = Option(
    "difftest_simulate",
    ("--difftest-simulate", "--simulate"),
    "run kernel tests on a simulator: the named one, or by default an installed Neuron SDK's, "
    "else the embedded one",
    (*SIMULATORS, "no"),
    {"action": SimulateAction, "nargs": 0},
    SIMULATORS,
)
DEVICE = Option(
    "difftest_device",
    ("--difftest-device", "--device"),
    "run kernel tests on a NeuronCore",
    _YES,
    _FLAG,
)
CASE = Option(
    "difftest_case",
    ("--difftest-case", "--case"),
    "run one kernel test on exactly this case, without Hypothesis; a failure prints the line to "
    "use",
    declaration={"metavar": "JSON"},
)
LEVEL = Option(
    "difftest_nki_level",
    ("--difftest-nki-level", "--nki-level"),
    "the level of NKI for kernels of `import nki` on the embedded simulator: a missing name raises",
    LEVELS,
    {"choices": LEVELS},
)
STRICTNESS = Option(
    "difftest_nki_strictness",
    ("--difftest-nki-strictness", "--nki-strictness"),
    "the broken rules that are warnings, not errors, on the embedded simulator",
    STRICTNESSES,
    {"choices": STRICTNESSES},
)
NO_EXACT = Option(
    "difftest_exact",
    ("--difftest-no-exact", "--no-exact"),
    "leave out the run without rounding, which separates a wrong algorithm from rounding: cases "
    "take less time, and only the bound from reduction= of the spec is checked",
    _YES,
    {"action": "store_const", "const": "no"},
)
REPORT = Option(
    "difftest_report",
    ("--difftest-report",),
    "write a report of the session: a page (.html), Markdown (.md) or else JSON; on GitHub also "
    "into the step's summary (docs/how-to/report.md)",
    declaration={"metavar": "FILE"},
)
SAVE = Option(
    "difftest_save",
    ("--difftest-save",),
    "write each failing case into this folder, with the sources that it needs, for difftest replay",
    declaration={"metavar": "DIR"},
)
HAZARDS = Option(
    "difftest_strict",
    ("--difftest-strict",),
    "let hazards that may be wrong on some device fail a kernel test, in place of a warning "
    "(docs/how-to/find-hazards.md)",
    _YES,
    _FLAG,
)
TIMEOUT = Option(
    "difftest_case_timeout",
    ("--difftest-case-timeout", "--case-timeout"),
    "stop a kernel or a reference that runs longer on one case, and fail its test",
    declaration={"metavar": "SECONDS"},
)
MEMORY = Option(
    "difftest_case_memory",
    ("--difftest-case-memory", "--case-memory"),
    "stop a kernel or a reference that needs more memory for one case, and fail its test (Linux)",
    declaration={"metavar": "MIB"},
)
MUTATE = Option(
    "difftest_mutate",
    ("--difftest-mutate",),
    "when all tests have passed, plant bugs in the kernels: the session fails if this number of "
    "drawn cases of each test misses a bug (docs/how-to/mutate.md)",
    declaration={"metavar": "CASES"},
)
_FREE_FORM = (CASE, REPORT, SAVE, TIMEOUT, MEMORY, MUTATE)
OPTIONS = (SIMULATE, DEVICE, LEVEL, STRICTNESS, NO_EXACT, HAZARDS, *_FREE_FORM)
_TABLE = "[tool.difftest]"
_OTHER_TABLES = ("lint",)
"""Tables within ``[tool.difftest]`` that are not pytest's."""


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
    taken : options with a name that others have declared, and whose ini keys are not set.
    case_option : the name of ``--case`` that no other plugin owns.
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
    case_option: str = CASE.name
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
    """Declare the options, by their free names, whose ini keys are not set."""
    free = _free(parser)
    keys = _keys(config)
    options = _options(free.values(), config.known_args_namespace, args)
    group = parser.getgroup("difftest", "kernels against their references (difftest)")
    for key, option in free.items():
        if option.is_in(args) or key in options or key not in keys:
            option.declare(group)


def read_request(
    config: pytest.Config, parser: pytest.Parser, args: Sequence[str], *, final: bool
) -> Request:
    """Return the request of a session, from its options, ini keys and table.

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
    options = _options(free.values(), config.known_args_namespace, args)
    values = {**keys, **options} if final else {**options, **keys}
    return Request(
        simulate=None if values.get(SIMULATE.key) == "no" else values.get(SIMULATE.key),
        device=values.get(DEVICE.key) in (True, "yes"),
        case=values.get(CASE.key),
        options=(*_words(options, free), *_overrides(config)),
        report=values.get(REPORT.key),
        level=values.get(LEVEL.key),
        strictness=values.get(STRICTNESS.key),
        exact=values.get(NO_EXACT.key) != "no",
        strict=values.get(HAZARDS.key) in (True, "yes"),
        taken=tuple(
            option
            for option in OPTIONS
            if free.get(option.key) != option and option.key not in keys
        ),
        case_option=free.get(CASE.key, CASE).name,
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
    """Return the settings by ini key: the ini keys that are set, then the table's.

    Raises
    ------
    pytest.UsageError : a value is not accepted, or the table has an unknown key.
    """
    keys: dict[str, str] = {}
    table = _table(config)
    for option in OPTIONS:
        value = config.getini(option.key)
        name = option.key
        if not value and option.setting in table:
            value = table[option.setting]
            name = f"pyproject.toml: {_TABLE} {option.setting}"
        if not value:
            continue
        if option.accepted and value not in option.accepted:
            accepted = ", ".join(option.accepted)
            raise pytest.UsageError(f"{name} = {value}: accepted are {accepted}")
        keys[option.key] = value
    return keys


def _table(config: pytest.Config) -> dict[str, str]:
    """Return the settings in the table of the pyproject.toml in pytest's root folder."""
    file = config.rootpath / "pyproject.toml"
    if not file.is_file() or b"tool.difftest" not in file.read_bytes():
        return {}
    from difftest.support.pyproject import difftest_table

    try:
        table = difftest_table(file)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{file} cannot be read: {error}") from None
    for name in _OTHER_TABLES:
        table.pop(name, None)
    accepted = [option.setting for option in OPTIONS]
    for name in table:
        if name not in accepted:
            hints = (did_you_mean(name, accepted, 0.4), "accepted are")
            raise pytest.UsageError(
                f"{file}: {_TABLE} has no setting {name!r}\n"
                f"  remedy: {' '.join(filter(None, hints))} {', '.join(accepted)}"
            )
    return {name: _ini_value(value) for name, value in table.items()}


def _ini_value(value: object) -> str:
    """Return a value of TOML as an ini file has it: true as yes, false as no."""
    if isinstance(value, bool):
        return _YES[0] if value else _YES[1]
    return str(value)


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
    """Return one line on the names of options that others have declared."""
    names = ", ".join(option.name for option in taken)
    others = ", ".join(option.names[0] for option in taken)
    verb = "are" if len(taken) > 1 else "is"
    return (
        f"difftest: {names} {verb} declared by another plugin or a conftest and {verb} left to it; "
        f"use {others}"
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


def _free(parser: pytest.Parser) -> dict[str, Option]:
    """Return the options by key, with the names that no other plugin has declared yet."""
    names = [name for option in OPTIONS for name in option.names]
    unknown = frozenset(_unknown(parser, names))
    free = {}
    for option in OPTIONS:
        kept = tuple(name for name in option.names if name in unknown)
        if kept:
            free[option.key] = option._replace(names=kept)
    return free


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
        if option.is_in(args):
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


def _words(options: Mapping[str, Any], free: Mapping[str, Option]) -> list[str]:
    """Return the options that chose the backends, as written on a command line."""
    words = []
    for option in (SIMULATE, LEVEL, STRICTNESS, TIMEOUT, MEMORY):
        value = options.get(option.key)
        if value:
            word = f"{free.get(option.key, option).name}={value}"
            words.append(word.removesuffix(f"={SIMULATORS[0]}"))
    for option in (DEVICE, NO_EXACT, HAZARDS):
        if options.get(option.key):
            words.append(free.get(option.key, option).name)
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
    left_out : kernels that a backend does not run.
    served : names of the backends that run a kernel of the tests.
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

"""What a pytest session was asked for: command line options, and the ini keys beside them.

Standard library and pytest alone, for every session reads this.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

SIMULATE = "--simulate"
DEVICE = "--device"
CASE = "--case"
SIMULATE_KEY = "difftest_simulate"
DEVICE_KEY = "difftest_device"
NO_EXACT = "--no-exact"
EXACT_KEY = "difftest_exact"
LEVEL = "--nki-level"
LEVEL_KEY = "difftest_nki_level"
LEVELS = ("0.3", "0.4", "0.5", "0.6", "0.7")
"""Must equal those of ``difftest.simulator``, which is not imported here to keep this light."""
STRICTNESS = "--nki-strictness"
STRICTNESS_KEY = "difftest_nki_strictness"
STRICTNESSES = ("documented", "seen", "relaxed")
"""Must equal those of ``difftest.simulator``, too."""
CHOICES = ("auto", "embedded", "plain", "sdk")
"""Must equal ``backends.SIMULATORS``, which is not imported here to keep this light."""


class SimulateAction(argparse.Action):
    """``--simulate`` and ``--simulate=CHOICE``, each an option string without an argument.

    An optional argument (``nargs="?"``) would swallow the path in ``pytest --simulate tests``.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Store what follows the equals sign, or "auto"."""
        _, _, choice = (option_string or "").partition("=")
        setattr(namespace, self.dest, choice or CHOICES[0])


@dataclass(frozen=True)
class Request:
    """What the session was asked for.

    Attributes
    ----------
    simulate : one of :data:`CHOICES`, or None.
    device : whether the device was asked for.
    case : the JSON of ``--case``, or None.
    options : the options that chose the backends, to run a case again.
    report : the file of ``--difftest-report``, or None.
    level : one of :data:`LEVELS`, or None.
    strictness : one of :data:`STRICTNESSES`, or None.
    exact : whether kernels run without rounding too, where their specs want it.
    """

    simulate: str | None
    device: bool
    case: str | None
    options: tuple[str, ...]
    report: str | None = None
    level: str | None = None
    strictness: str | None = None
    exact: bool = True

    @property
    def wants_backends(self) -> bool:
        """Whether kernel tests are to run."""
        return self.simulate is not None or self.device


def add_options(parser: pytest.Parser, config: pytest.Config) -> None:
    """Declare ini keys, and those options whose key is not set."""
    parser.addini(SIMULATE_KEY, f"instead of {SIMULATE}: {', '.join(CHOICES)} or no", default="")
    parser.addini(DEVICE_KEY, f"instead of {DEVICE}: yes or no", default="")
    parser.addini(LEVEL_KEY, f"instead of {LEVEL}: {', '.join(LEVELS)}", default="")
    parser.addini(STRICTNESS_KEY, f"instead of {STRICTNESS}: {', '.join(STRICTNESSES)}", default="")
    parser.addini(EXACT_KEY, f"no instead of {NO_EXACT}, else yes", default="")
    group = parser.getgroup("difftest", "kernels against their references (difftest)")
    if not config.getini(SIMULATE_KEY):
        group.addoption(
            SIMULATE,
            *(f"{SIMULATE}={choice}" for choice in CHOICES),
            action=SimulateAction,
            dest=SIMULATE_KEY,
            help="run kernel tests on a simulator: the Neuron SDK's where it is installed, else "
            "the embedded one; or the one named",
        )
    if not config.getini(DEVICE_KEY):
        group.addoption(
            DEVICE,
            action="store_true",
            dest=DEVICE_KEY,
            help="run kernel tests on a NeuronCore",
        )
    group.addoption(
        CASE,
        metavar="JSON",
        dest="difftest_case",
        help="run one kernel test on exactly this case, without Hypothesis; a failure prints the "
        "line to use",
    )
    group.addoption(
        LEVEL,
        choices=LEVELS,
        dest=LEVEL_KEY,
        help="the level of NKI for kernels of `import nki` on the embedded simulator: what it "
        "lacks raises",
    )
    group.addoption(
        STRICTNESS,
        choices=STRICTNESSES,
        dest=STRICTNESS_KEY,
        help="which broken rules are warnings and not errors on the embedded simulator",
    )
    group.addoption(
        NO_EXACT,
        action="store_true",
        dest=EXACT_KEY,
        help="leave out the run without rounding that tells a wrong algorithm from rounding: cases "
        "take less time, and the bound that follows from reduction= of the spec is all there is",
    )
    _add_report(group)


def _add_report(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--difftest-report",
        metavar="FILE",
        dest="difftest_report",
        help="write what ran and what came of it as JSON, for CI",
    )


def read_request(config: pytest.Config, namespace: argparse.Namespace) -> Request:
    """The request of a session, from its options and ini keys.

    Raises
    ------
    pytest.UsageError : an ini key has a value that it does not accept, or ``--case`` has no
        backend.
    """
    options: list[str] = []
    simulate: str | None = config.getini(SIMULATE_KEY)
    if simulate:
        _check_choice(SIMULATE_KEY, simulate, (*CHOICES, "no"))
        simulate = None if simulate == "no" else simulate
    else:
        simulate = getattr(namespace, SIMULATE_KEY, None)
        if simulate:
            options.append(SIMULATE if simulate == CHOICES[0] else f"{SIMULATE}={simulate}")
    device: Any = config.getini(DEVICE_KEY)
    if device:
        _check_choice(DEVICE_KEY, device, ("yes", "no"))
        device = device == "yes"
    else:
        device = bool(getattr(namespace, DEVICE_KEY, False))
        options += [DEVICE] if device else []
    level = _chosen(config, namespace, LEVEL, LEVEL_KEY, LEVELS, options)
    strictness = _chosen(config, namespace, STRICTNESS, STRICTNESS_KEY, STRICTNESSES, options)
    exact = not getattr(namespace, EXACT_KEY, False)
    if not exact:
        options.append(NO_EXACT)
    elif given := config.getini(EXACT_KEY):
        _check_choice(EXACT_KEY, given, ("yes", "no"))
        exact = given == "yes"
    # Once each: pytest parses the command line more than once, and older ones collect them twice.
    overrides = dict.fromkeys(namespace.override_ini or ())
    for override in overrides:
        options += ["-o", override] if override.startswith("difftest_") else []
    request = Request(
        simulate,
        device,
        namespace.difftest_case,
        tuple(options),
        namespace.difftest_report,
        level,
        strictness,
        exact,
    )
    if request.case is not None and not request.wants_backends:
        raise pytest.UsageError(f"{CASE} needs a backend: add {SIMULATE} or {DEVICE}")
    return request


def _chosen(
    config: pytest.Config,
    namespace: argparse.Namespace,
    option: str,
    key: str,
    choices: Sequence[str],
    options: list[str],
) -> str | None:
    """What an option or, without it, its ini key says; an option is added to ``options``."""
    value: str | None = getattr(namespace, key, None)
    if value:
        options.append(f"{option}={value}")
    elif value := config.getini(key):
        _check_choice(key, value, choices)
    return value or None


def in_one_process(args: list[str]) -> None:
    """Make pytest-xdist start no workers.

    A case that does not fit its test is a usage error, and one of a worker crashes pytest.
    """
    end = args.index("--") if "--" in args else len(args)
    args[end:end] = ["-n", "0"]


def _check_choice(key: str, value: str, accepted: Sequence[str]) -> None:
    if value not in accepted:
        raise pytest.UsageError(f"{key} = {value}: accepted are {', '.join(accepted)}")

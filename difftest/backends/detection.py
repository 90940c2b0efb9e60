"""Which Neuron SDK is installed, what of it works, and what this generation of it cannot do.

Two generations of NKI exist (AWS Neuron documentation, NKI migration guides): the classic one is
the package ``neuronxcc.nki`` (SDK 2.21 to 2.26; still there later), the newer one the package
``nki`` (from SDK 2.27; it runs NumPy arrays and has a simulator from 2.29). Features are probed;
a version is read for the report, and where a documented defect cannot be seen from outside.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from types import ModuleType
from typing import Any

from difftest.choices import RELEASES
from difftest.simulator.frontend.install import is_embedded

SETUP_GUIDE = "awsdocs-neuron.readthedocs-hosted.com, Setup Guide"
"""Where AWS says how to install the SDK; its Python packages are in AWS's own index alone."""

CLASSIC, NEWER = "classic", "newer"
PACKAGES = {CLASSIC: "neuronxcc.nki", NEWER: "nki"}
"""The package that each generation's kernels import."""

_STUB_MARK = "WRONG PACKAGE"
"""What the packages that AWS placed on PyPI under these names say when they are imported."""
_DISTRIBUTIONS = ("neuronx-cc", "neuronxcc", "nki")
_ZEROS_SINCE = 30
"""Minor number of the SDK from which on the classic ``baremetal`` is not to be trusted: with 2.32
it returns zeros (public issue aws-neuron/nki-samples#134), and the compiler refuses the classic
namespace in kernels since 2.30 (NKI migration guide, 0.3.0 to 0.4.0)."""
_COMPILER_TO_SDK = 5
"""neuronx-cc 2.21 is SDK 2.26, 2.22 is 2.27, 2.24 is 2.29, 2.27 is 2.32 (its release notes)."""


@dataclass(frozen=True)
class Detection:
    """What was found where one generation of the SDK would be: a module that can be used, or None.

    ``found`` is the version, or why there is none, in words.
    """

    module: ModuleType | None
    found: str

    def function(self, name: str) -> Callable[..., Any] | None:
        """The module's function of that name, if it has one."""
        function = getattr(self.module, name, None)
        return function if callable(function) else None


@dataclass(frozen=True)
class Sdk:
    """Both generations as they are installed here."""

    classic: Detection
    newer: Detection
    versions: dict[str, str] = field(default_factory=dict)
    """Distribution or module -> version, of what is installed."""

    @property
    def release(self) -> int | None:
        """The minor number of the SDK's release, 26 for 2.26; None if no version tells."""
        nki = re.match(r"0\.(\d+)", self.versions.get("nki", ""))
        if nki and nki[0] in RELEASES:
            return RELEASES[nki[0]]
        compiler = re.match(r"2\.(\d+)", self.versions.get("neuronx-cc", ""))
        return int(compiler[1]) + _COMPILER_TO_SDK if compiler else None

    @property
    def found(self) -> str:
        """Both generations in words."""
        return "; ".join([self.classic.found, *[self.newer.found] * bool(self.newer.module)])

    def refuses_classic(self) -> str | None:
        """Why classic kernels do not run on a device with this SDK; None if they may."""
        if self.release is None or self.release < _ZEROS_SINCE:
            return None
        return (
            f"neuronxcc.nki.baremetal of SDK 2.{self.release} is not used: since 2.30 the compiler "
            "refuses neuronxcc.nki in kernels, and with 2.32 its outputs are zeros "
            "(aws-neuron/nki-samples#134)"
        )


def detect_sdk() -> Sdk:
    """Look for both generations; a stub or a part of one does not count."""
    versions = {name: version for name in _DISTRIBUTIONS if (version := _version(name)) is not None}

    def stated_or_installed() -> str | None:
        return getattr(sys.modules.get("nki"), "__version__", None) or _version("nki")

    classic, newer = detect(), _detect("nki", "nki", stated_or_installed)
    stated = getattr(newer.module, "__version__", None)
    if isinstance(stated, str):
        versions["nki"] = stated
    return Sdk(classic, newer, versions)


def detect() -> Detection:
    """Look for the classic generation."""
    return _detect("neuronxcc", "neuronxcc.nki", lambda: _version("neuronx-cc"))


def _detect(package: str, name: str, version: Callable[[], str | None]) -> Detection:
    if package in sys.modules and is_embedded(sys.modules[package]):
        return Detection(None, f"the embedded modules stand for {package} in this process")
    if importlib.util.find_spec(package) is None:
        return Detection(None, "no package nki" if package == "nki" else _describe_absence())
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return Detection(None, f"the package {package}, which fails to import: {error}")
    if package == "nki" and not callable(getattr(module, "jit", None)):
        return Detection(None, "a package nki without nki.jit, which is not the SDK's")
    return Detection(module, f"{package} {version() or 'of unknown version'}")


def _describe_absence() -> str:
    stubs = [
        f"{name} {version} from PyPI, an empty stub that is not the SDK"
        for name in _DISTRIBUTIONS
        if (version := _version(name)) is not None and _is_stub(name)
    ]
    return "; ".join(stubs) or "no package neuronxcc"


def _is_stub(distribution: str) -> bool:
    return _STUB_MARK in str(metadata.metadata(distribution).json.get("description"))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

"""The files that options of ``nki.baremetal``, ``nki.benchmark`` and ``nki.profile`` name.

A compiler writes a NEFF, and a device writes a profile of the run (NTFF). The simulator has
neither. It writes the launch's trace to the file named for the NEFF, and the timing model's
prediction to the file named for the profile. Both are JSON that states its format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.strictness import report_violation
from difftest.simulator.trace import Trace
from difftest.simulator.trace_json import trace_to_json

NEFF, PROFILE, ARTIFACTS, FOLDER = FILE_OPTIONS = (
    "save_neff_name",
    "save_trace_name",
    "artifacts_dir",
    "working_directory",
)
"""Options that name files and folders."""
PROFILE_FORMAT = "difftest predicted profile"
_OURS = b'{"format":"difftest '
"""The first bytes of each file that the simulator writes."""


class Artifacts(NamedTuple):
    """The files of one launch. ``folders`` are created if they are missing."""

    traces: tuple[Path, ...] = ()
    profiles: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.traces or self.profiles)

    def without(self, left: list[Path]) -> Artifacts:
        """Return the artifacts that are not among the paths ``left`` as they are."""
        traces = tuple(path for path in self.traces if path not in left)
        profiles = tuple(path for path in self.profiles if path not in left)
        return Artifacts(traces, profiles, self.folders)

    def write(
        self, trace: Trace, profile: Callable[[], Mapping[str, object]] | None
    ) -> None:
        """Write the files of the launch.

        Parameters
        ----------
        trace : the launch's trace.
        profile : a function that returns the predicted profile as JSON values; None without a
            predictor.

        Raises
        ------
        KernelError : a file cannot be written. Exceptions of ``profile`` are passed on.
        """
        try:
            for folder in self.folders:
                folder.mkdir(parents=True, exist_ok=True)
            if self.traces:
                _write_all(self.traces, trace_to_json(trace))
            if self.profiles and profile is not None:
                members = {**_PROFILE_HEAD, "kernel": trace.kernel, **profile()}
                document = json.dumps(members, separators=(",", ":")) + "\n"
                _write_all(self.profiles, document)
        except OSError as error:
            received = str(error.filename)
            raise not_taken(
                "a decorator",
                "files to write",
                f"{error.filename}: {error.strerror}",
                received,
                remedy="make its folder, or name another",
            ) from None


def _write_all(paths: tuple[Path, ...], document: str) -> None:
    """Write one document to several files."""
    for path in paths:
        path.write_text(document, encoding="utf-8")


_PROFILE_HEAD = {
    "format": PROFILE_FORMAT,
    "version": 1,
    "about": "Predicted by a timing model from the trace of a simulation; nothing was measured",
}


def artifacts_of(
    where: str, options: Mapping[str, Any], *, predicts: bool
) -> Artifacts:
    """Return the files that the options of ``where`` name, and report what they will contain.

    A file of another origin is never replaced. ``nki.profile`` replaces the simulator's own files
    only with ``overwrite=True``.

    Parameters
    ----------
    predicts : whether a timing model is available.

    Raises
    ------
    KernelError : an option is not a path; or the note, if notes are errors.
    """
    named = {name: options[name] for name in FILE_OPTIONS if options.get(name)}
    paths = {name: _path(where, name, value) for name, value in named.items()}
    if not paths:
        return Artifacts()
    wanted = _named_files(paths)
    replace_own = FOLDER not in paths or bool(options.get("overwrite"))
    files = wanted.traces + wanted.profiles
    left = [path for path in files if _stays(path, replace_own)]
    if not predicts:
        left = list(dict.fromkeys((*left, *wanted.profiles)))
    _report_contents(where, named, left, predicts)
    return wanted.without(left)


def _named_files(paths: Mapping[str, Path]) -> Artifacts:
    """Return the files that options name; a folder has default names for its files."""
    names = dict(paths)
    traces = []
    profiles = []
    folders = []
    base = Path()
    if FOLDER in names:
        base = names[FOLDER]
        folders.append(base)
        names.setdefault(NEFF, Path("file.neff"))
        names.setdefault(PROFILE, Path("profile.ntff"))
    if NEFF in names:
        traces.append(base / names[NEFF])
    if PROFILE in names:
        profiles.append(base / names[PROFILE])
    if ARTIFACTS in names:
        folders.append(names[ARTIFACTS])
        traces.append(names[ARTIFACTS] / "trace.json")
    return Artifacts(tuple(traces), tuple(profiles), tuple(folders))


def _path(where: str, name: str, value: object) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise wrong_kind(value, "a path", where, name)
    return Path(value)


def _stays(path: Path, replace_own: bool) -> bool:
    """Return whether a file exists that must not be replaced."""
    if not path.exists():
        return False
    if not (path.is_file() and replace_own and os.access(path, os.R_OK)):
        return True
    with path.open("rb") as file:
        return file.read(len(_OURS)) not in (_OURS, b"")


def _report_contents(
    where: str, named: Mapping[str, Any], left: list[Path], predicts: bool
) -> None:
    """Report that the files differ from those of a compiler and a device."""
    written = "the trace"
    if predicts:
        written = "the trace of the simulation, and a predicted profile"
    received = ", ".join(f"{name}={str(value)!r}" for name, value in named.items())
    remedy = "difftest trace and difftest profile write the same"
    if left:
        received += f"; not written: {', '.join(map(str, left))}"
        remedy = f"name files that are not there yet; {remedy}"
    error = KernelError(
        f"a compiler writes a NEFF and a device a profile; here it is {written}, as JSON",
        happened=f"only a compiler and a device can write the requested files ({where})",
        received=received,
        remedy=remedy,
    )
    report_violation(error)

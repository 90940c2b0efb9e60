"""The files that ``nki.benchmark``, ``nki.baremetal`` and ``nki.profile`` are asked for.

A compiler writes a NEFF and a device a profile of the run (NTFF). Neither is here, so the file that
is named for the NEFF gets the trace of the launch, and the one named for the profile what a timing
model predicts, both as JSON that says what it is. Sources of the arguments: ``nki.benchmark``,
``nki.baremetal`` and ``nki.profile`` at tag v2.26.0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.instructions.operands import wrong_kind
from difftest.simulator.strictness import note
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
"""With this begins each file that the simulator writes."""


@dataclass(frozen=True)
class Artifacts:
    """The files of one launch. Folders of ``made`` are created if they are missing."""

    traces: tuple[Path, ...] = ()
    profiles: tuple[Path, ...] = ()
    made: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.traces or self.profiles)

    def write(self, trace: Trace, profile: Callable[[], Mapping[str, object]] | None) -> None:
        """Write what the launch has.

        Parameters
        ----------
        trace : of the launch.
        profile : makes the predicted profile, as what JSON has; None where nothing predicts.

        Raises
        ------
        KernelError : a file cannot be written. Whatever ``profile`` raises.
        """
        try:
            for folder in self.made:
                folder.mkdir(parents=True, exist_ok=True)
            if self.traces:
                document = trace_to_json(trace)
                for path in self.traces:
                    path.write_text(document, encoding="utf-8")
            if self.profiles and profile is not None:
                document = _profile_to_json(trace, profile())
                for path in self.profiles:
                    path.write_text(document, encoding="utf-8")
        except OSError as error:
            got, remedy = (
                f"{error.filename}: {error.strerror}",
                "make its folder, or name another",
            )
            given = str(error.filename)
            raise not_taken("a decorator", "files to write", got, given, remedy=remedy) from None


def _profile_to_json(trace: Trace, profile: Mapping[str, object]) -> str:
    head = {
        "format": PROFILE_FORMAT,
        "version": 1,
        "about": "Predicted by a timing model from the trace of a simulation; nothing was measured",
        "kernel": trace.kernel,
    }
    return json.dumps({**head, **profile}, separators=(",", ":")) + "\n"


def artifacts_of(where: str, options: Mapping[str, Any], *, predicts: bool) -> Artifacts:
    """The files that the options of ``where`` name, and a note of what will be in them.

    A file that is there and that the simulator did not write is never replaced; ``nki.profile``
    replaces none unless it is told to (``overwrite=True``).

    Parameters
    ----------
    predicts : whether a timing model is at hand.

    Raises
    ------
    KernelError : an option is no path; or the note, where notes are errors.
    """
    named = {name: options[name] for name in FILE_OPTIONS if options.get(name)}
    paths = {name: _path(where, name, value) for name, value in named.items()}
    if not paths:
        return Artifacts()
    folder = paths.get(FOLDER)
    traces, profiles, made = [], [], []
    if folder is not None:
        made.append(folder)
        paths.setdefault(NEFF, Path("file.neff"))
        paths.setdefault(PROFILE, Path("profile.ntff"))
    base = Path() if folder is None else folder
    if NEFF in paths:
        traces.append(base / paths[NEFF])
    if PROFILE in paths:
        profiles.append(base / paths[PROFILE])
    if ARTIFACTS in paths:
        made.append(paths[ARTIFACTS])
        traces.append(paths[ARTIFACTS] / "trace.json")
    replace_own = FOLDER not in paths or bool(options.get("overwrite"))
    left = [path for path in (*traces, *profiles) if _stays(path, replace_own)]
    if not predicts:
        left += [path for path in profiles if path not in left]
    _say(where, named, left, predicts)
    return Artifacts(
        tuple(path for path in traces if path not in left),
        tuple(path for path in profiles if path not in left),
        tuple(made),
    )


def _path(where: str, name: str, value: object) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise wrong_kind(value, "a path", where, name)
    return Path(value)


def _stays(path: Path, replace_own: bool) -> bool:
    """Whether a file is there that must not be replaced."""
    if not path.exists():
        return False
    if not (path.is_file() and replace_own and os.access(path, os.R_OK)):
        return True
    with path.open("rb") as file:
        return file.read(len(_OURS)) not in (_OURS, b"")


def _say(where: str, named: Mapping[str, Any], left: list[Path], predicts: bool) -> None:
    """Note that the files are not what a compiler and a device write."""
    written = "the trace of the simulation, and a predicted profile" if predicts else "the trace"
    kept = f"; not written: {', '.join(map(str, left))}" if left else ""
    error = KernelError(
        f"a compiler writes a NEFF and a device a profile; here it is {written}, as JSON",
        happened=f"files were asked for that only a compiler and a device can write ({where})",
        received=", ".join(f"{name}={str(value)!r}" for name, value in named.items()) + kept,
        remedy="name files that are not there yet; difftest trace and difftest profile write the "
        "same"
        if kept
        else "difftest trace and difftest profile write the same",
    )
    note(error)

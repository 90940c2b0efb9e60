"""Compiled kernels on disk: compiling takes minutes, and a crash half-way must leave nothing wrong.

An entry is a folder that is filled under another name and then renamed, which is atomic. It holds
its files and a manifest with their digests; an entry whose digests do not hold is thrown away. Two
processes that want the same entry compile it once: the second waits for the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

CACHE_FOLDER = "DIFFTEST_CACHE_DIR"
_MANIFEST = "manifest.json"
_UNFINISHED = ".unfinished-"


def cache_folder() -> Path:
    """Where compiled kernels lie unless told otherwise: the user's cache."""
    chosen = os.environ.get(CACHE_FOLDER)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "difftest"


class CompileCache:
    """Entries by key, each a folder of files.

    Attributes
    ----------
    hits, misses : how often an entry was there, and how often it was made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0

    def get(self, key: str, make: Callable[[Path], None]) -> Path:
        """The folder of ``key``; if there is none, ``make`` fills an empty one.

        Whatever ``make`` raises goes through, and leaves no entry.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked(key):
            entry = self.folder / key
            if self._is_whole(entry):
                self.hits += 1
                return entry
            self._discard(key)
            self.misses += 1
            unfinished = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{key}-", dir=self.folder))
            try:
                make(unfinished)
                _write_manifest(unfinished)
                os.replace(unfinished, entry)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            _sync(self.folder)
            return entry

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        import fcntl  # here, for the module is read on computers that have no flock

        with open(self.folder / f"{key}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # a process forked meanwhile has the file too

    def _is_whole(self, entry: Path) -> bool:
        """Whether the entry is there, and each of its files as it was written."""
        try:
            manifest = json.loads((entry / _MANIFEST).read_text(encoding="utf-8"))
            return bool(manifest) and manifest == _digests(entry)
        except (OSError, ValueError):
            return False

    def _discard(self, key: str) -> None:
        """Remove a damaged entry, and what an interrupted process left of it."""
        for left in [self.folder / key, *self.folder.glob(f"{_UNFINISHED}{key}-*")]:
            if left.exists():
                shutil.rmtree(left)


def _write_manifest(folder: Path) -> None:
    """The digests of all files; they and the manifest reach the disk before the rename."""
    for file in _files(folder):
        _sync(file)
    manifest = folder / _MANIFEST
    manifest.write_text(json.dumps(_digests(folder), indent=1), encoding="utf-8")
    _sync(manifest)


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in _files(folder)
    }


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.name != _MANIFEST)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Where findings are kept: a file each for people, and an entry each in Hypothesis's database.

Whoever shares the database, in a folder, in Redis or as an artefact of CI, has the findings too.
Where two differ, the one counts whose state changed last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings
from hypothesis.configuration import storage_directory
from hypothesis.database import ExampleDatabase

from difftest.host.output import write_file
from difftest.scale.found import Found, FoundError, found_from_json, newest

KEY = b"difftest.findings"
"""Of the database's entries."""
FOLDER = "difftest-findings"
"""Beside ``examples``, the folder of Hypothesis's usual database."""


class Findings:
    """All findings that are known here.

    Parameters
    ----------
    folder : of the files; by default that beside Hypothesis's database. It is made when the first
        finding is.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or storage_directory(FOLDER, intent_to_write=False).path

    @property
    def database(self) -> ExampleDatabase | None:
        """That of the profile of Hypothesis that is loaded by now; None if it has none."""
        profile = settings.default
        return None if profile is None else profile.database

    def __iter__(self) -> Iterator[Found]:
        """Each finding, in the state that it came to last; the oldest first."""
        known = newest([*self._files(), *(one for _, one in self._entries())])
        return iter(sorted(known.values(), key=lambda one: (one.found, one.id)))

    def get(self, id: str) -> Found | None:
        """The finding of an id, or of its first digits if one alone begins so."""
        fitting = [one for one in self if one.id.startswith(id)]
        return fitting[0] if len(fitting) == 1 else None

    def put(self, found: Found) -> None:
        """Keep a finding, in the place of what was known of it."""
        write_file(self._file(found), found.to_json())
        self._forget(found)
        if self.database is not None:
            self.database.save(KEY, found.to_json().encode())

    def drop(self, found: Found) -> None:
        """Forget a finding."""
        self._file(found).unlink(missing_ok=True)
        self._forget(found)

    def exchange(self) -> None:
        """Let the files have what the database has, and the other way round."""
        files, entries = newest(self._files()), newest(one for _, one in self._entries())
        for found in self:
            if files.get(found.id) != found:
                write_file(self._file(found), found.to_json())
            if self.database is not None and entries.get(found.id) != found:
                self.put(found)

    def _forget(self, found: Found) -> None:
        for entry, one in tuple(self._entries()):
            if one.id == found.id and self.database is not None:
                self.database.delete(KEY, entry)

    def _file(self, found: Found) -> Path:
        return self.folder / f"{found.id}.json"

    def _files(self) -> Iterator[Found]:
        for file in sorted(self.folder.glob("*.json")):
            try:
                yield found_from_json(file.read_bytes())
            except FoundError as error:
                raise FoundError(f"{file}: {error}; delete it, or put back what it was") from None

    def _entries(self) -> Iterator[tuple[bytes, Found]]:
        for entry in () if self.database is None else self.database.fetch(KEY):
            with contextlib.suppress(FoundError):  # of another version: its file says so
                yield entry, found_from_json(entry)

"""Where findings are kept: a file each for people, and an entry each in Hypothesis's database.

The files make a finding readable; the database lets it travel: whoever shares it, in a folder, in
Redis or as an artefact of CI, has the findings too. What differs is settled by whose state changed
last.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hypothesis.configuration import storage_directory
from hypothesis.database import ExampleDatabase

from difftest.scale.found import Found, FoundError, found_from_json, newest

KEY = b"difftest.findings"
"""Of the database's entries."""
FOLDER = "difftest-findings"
"""Beside ``examples``, the folder of Hypothesis's usual database."""


class Findings:
    """All findings that are known here.

    Parameters
    ----------
    database : Hypothesis's; None if it has none.
    folder : of the files; by default that beside Hypothesis's database. It is made when the first
        finding is.
    """

    def __init__(self, database: ExampleDatabase | None, folder: Path | None = None) -> None:
        self.database = database
        self.folder = folder or storage_directory(FOLDER, intent_to_write=False).path

    def __iter__(self) -> Iterator[Found]:
        """Each finding, in the state that it came to last; the oldest first."""
        known = newest([*self._files(), *self._entries()])
        return iter(sorted(known.values(), key=lambda one: (one.found, one.id)))

    def get(self, id: str) -> Found | None:
        """The finding of an id, or of its first digits if one alone begins so."""
        fitting = [one for one in self if one.id.startswith(id)]
        return fitting[0] if len(fitting) == 1 else None

    def put(self, found: Found) -> None:
        """Keep a finding, in the place of what was known of it."""
        self._write(found)
        if self.database is not None:
            for entry in tuple(self.database.fetch(KEY)):
                if _id_of(entry) == found.id:
                    self.database.delete(KEY, entry)
            self.database.save(KEY, found.to_json().encode())

    def drop(self, found: Found) -> None:
        """Forget a finding."""
        self._file(found).unlink(missing_ok=True)
        if self.database is not None:
            for entry in tuple(self.database.fetch(KEY)):
                if _id_of(entry) == found.id:
                    self.database.delete(KEY, entry)

    def exchange(self) -> None:
        """Let the files have what the database has, and the other way round."""
        files, entries = newest(self._files()), newest(self._entries())
        for found in self:
            if files.get(found.id) != found:
                self._write(found)
            if self.database is not None and entries.get(found.id) != found:
                self.put(found)

    def _file(self, found: Found) -> Path:
        return self.folder / f"{found.id}.json"

    def _write(self, found: Found) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._file(found)
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_text(found.to_json(), encoding="utf-8")
        os.replace(new, file)  # whoever reads it meanwhile reads the one or the other

    def _files(self) -> Iterator[Found]:
        for file in sorted(self.folder.glob("*.json")):
            try:
                yield found_from_json(file.read_bytes())
            except FoundError as error:
                raise FoundError(f"{file}: {error}; delete it, or put back what it was") from None

    def _entries(self) -> Iterator[Found]:
        for entry in () if self.database is None else self.database.fetch(KEY):
            with contextlib.suppress(FoundError):  # of another version: its file says so
                yield found_from_json(entry)


def _id_of(entry: bytes) -> str:
    try:
        return found_from_json(entry).id
    except FoundError:
        return ""

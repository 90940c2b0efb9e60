"""Words of messages: counts with their nouns, lists, and suggestions for a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable


def count_of(number: int, noun: str) -> str:
    """Return a number and its noun.

    >>> count_of(1, "case"), count_of(3, "case")
    ('1 case', '3 cases')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def did_you_mean(name: str, names: Iterable[str], likeness: float = 0.6) -> str:
    """Return a question with the nearest name; empty if no name is near.

    Parameters
    ----------
    likeness : the least ratio of :class:`difflib.SequenceMatcher`, from 0 to 1.
    """
    from difflib import get_close_matches  # few runs misspell a name

    nearest = get_close_matches(name, list(names), 1, likeness)
    return f"did you mean {nearest[0]}?" if nearest else ""

"""``@every``: as ``pytest.mark.parametrize``, in one test.

Hundreds of cases that take a millisecond each cost more to collect, report and send to workers than
to run. All cases run although one fails; the error names each that did.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest


def every(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Any]:
    """Run a test's function for each of ``values``, each with fresh fixtures.

    Parameters
    ----------
    names : names of the arguments that a case gives, separated by commas or in a tuple.
    values : for each case a value, or a tuple with a value for each name. It may not be empty.
    """
    given = names.split(",") if isinstance(names, str) else list(names)
    given = [name.strip() for name in given]
    cases = [
        dict(zip(given, _values(value, len(given)), strict=True)) for value in values
    ]

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def test(**fixtures: Any) -> None:
            __tracebackhide__ = True
            assert cases, f"{function.__name__} has no cases"
            failures = []
            for number, arguments in enumerate(cases):
                try:
                    with _fresh(fixtures, number) as own:
                        function(**arguments, **own)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append((arguments, error))
            if failures:
                count = f"{len(failures)} of {len(cases)} cases of {function.__name__} failed"
                raise _error_of(failures, count) from failures[0][1]

        signature = inspect.signature(function)
        left = [one for name, one in signature.parameters.items() if name not in given]
        test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return test

    return decorate


def _error_of(
    failures: list[tuple[dict[str, Any], BaseException]], title: str
) -> AssertionError:
    """Return one error with the arguments and the error of each case that failed."""
    lines = [f"{arguments}: {error!r:.300}" for arguments, error in failures[:10]]
    return AssertionError("\n".join([title, *lines]))


@contextlib.contextmanager
def _fresh(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Yield fixtures for one case: patches that are undone, a new folder, and no output yet."""
    own = dict(fixtures)
    with pytest.MonkeyPatch.context() as patch:
        if own.get("monkeypatch"):
            own["monkeypatch"] = patch
        if own.get("tmp_path"):
            own["tmp_path"] = own["tmp_path"] / str(number)
            own["tmp_path"].mkdir()
        if own.get("capsys"):
            own["capsys"].readouterr()
        yield own


def _values(value: Any, names: int) -> Iterable[Any]:
    """Return a case's value for each name; ``pytest.param`` holds the values and an id."""
    if isinstance(value, type(pytest.param())):
        return tuple(value.values)
    return value if names > 1 else (value,)

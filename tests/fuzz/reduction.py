"""A failing program with fewer lines, cut line by line.

Outputs, statements and inputs are removed from the finished program while the failure keeps its
signature. Hypothesis does not shrink the draws: a program is drawn while it runs, so each draw
changes all later ones. Shrinking takes a minute where this reduction takes a second, with equally
many lines left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tests.fuzz.comparison import Disagreement, check
from tests.fuzz.program import Loop, Program, Statement


def reduced(failure: Disagreement, modes: tuple[str, ...]) -> Disagreement:
    """Return the failure of the smallest program found by removing parts."""
    going = True
    while going:
        going = False
        for program in _smaller(failure.program):
            found = _fails(program, failure.signature, modes)
            if found is not None:
                failure = found
                going = True
                break
    return failure


def _fails(
    program: Program, signature: str, modes: tuple[str, ...]
) -> Disagreement | None:
    try:
        check(program, modes)
    except Disagreement as found:
        return found if found.signature == signature else None
    return None


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one part less, the large parts first."""
    for number, output in enumerate(program.outputs):
        rest = program.outputs[:number] + program.outputs[number + 1 :]
        name = re.compile(rf"\b{output.name}\b")
        body = (
            s for s in program.body if not any(name.search(text) for text in s.lines())
        )
        yield replace(program, outputs=rest, body=tuple(body))
        yield replace(program, outputs=rest)
    for body in _shorter(program.body):
        yield replace(program, body=body)
    for number, given in enumerate(program.inputs):
        if not any(
            re.search(rf"\b{given.name}\b", t) for s in program.body for t in s.lines()
        ):
            inputs = program.inputs[:number] + program.inputs[number + 1 :]
            mutated = tuple(one for one in program.mutated if one.name != given.name)
            yield replace(program, inputs=inputs, mutated=mutated)


def _shorter(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """A body with one statement less, the last first; or with a loop's body in its place."""
    for number in reversed(range(len(body))):
        before = body[:number]
        statement = body[number]
        after = body[number + 1 :]
        yield before + after
        if isinstance(statement, Loop):
            yield (*before, *statement.body, *after)
            if statement.count > 1:
                yield (*before, replace(statement, count=1), *after)
            for inner in _shorter(statement.body):
                if inner:
                    yield (*before, replace(statement, body=inner), *after)

"""Both modes of the simulator on one program, and all kinds of disagreement."""

from __future__ import annotations

import contextlib
import re
import traceback
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.simulator import (
    LaunchResult,
    NkiError,
    NotModelledError,
    OracleError,
    launch,
)
from difftest.simulator.dtypes import from_bits, is_float
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.launch import Launch
from tests.fuzz.program import DRAWN, Output, Program

MODES = {
    "fast": {},
    "exact": {"exact": ExactSettings(dtypes=("float8_e5m2",), losses=True)},
    "plain": {"plain": True},
}
"""The exact run beside the fast mode changes no bit of its result, in any dtype."""


class Disagreement(AssertionError):
    """The two modes differ, or one died of an error that is not the simulator's own.

    ``signature`` names the kind of failure, so that a campaign counts each one once.
    """

    def __init__(self, program: Program, signature: str, what: str) -> None:
        self.program = program
        self.signature = signature
        super().__init__(f"{what}\n\n{program.script()}")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a program in one mode: a result, a rejection, or a crash."""

    mode: str
    arrays: tuple[Any, ...] = ()
    """The arguments, as the launch left them."""
    result: LaunchResult | None = None
    refusal: NkiError | None = None
    crash: BaseException | None = None
    place: str = ""
    """Return the place of a crash; it is known while the kernel's lines are."""

    def __str__(self) -> str:
        if self.result is not None:
            return f"{self.mode} ran it"
        return f"{self.mode}: {type(self.refusal or self.crash).__name__}: " + str(
            self.refusal or self.crash
        )


def run(program: Program, mode: str) -> Outcome:
    """Run a program in one mode, with arrays of its own."""
    arrays = tuple(each.array() for each in program.inputs)
    with program.compiled() as kernel, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the values are compared
        try:
            result = launch(
                kernel,
                arrays,
                grid=program.grid,
                machine=program.machine_record,
                **MODES[mode],
            )
        except NkiError as error:
            str(error)  # while the kernel's lines are there to be quoted
            return Outcome(mode, arrays, refusal=error)
        except Exception as error:
            return Outcome(mode, arrays, crash=error, place=_place(error))
    return Outcome(mode, arrays, result=result)


def check(program: Program, modes: tuple[str, ...] = tuple(MODES)) -> list[Outcome]:
    """Run a program in each mode.

    Raises
    ------
    Disagreement : the modes differ in a value, in the written elements or in a rejection; or an
        error of Python or NumPy ended a kernel.
    """
    outcomes: list[Outcome] = []
    for mode in modes:
        outcome = run(program, mode)
        outcomes.append(outcome)
        if isinstance(outcome.crash, OracleError):
            signature = f"value {str(outcome.crash).split(' wrote ')[0]}"
            raise Disagreement(program, signature, str(outcome))
        if outcome.crash is not None:
            raise Disagreement(
                program, f"{outcome.mode}: raw {outcome.place}", str(outcome)
            )
        _compare_arguments(program, outcome)
        _compare_exact(program, outcome)
    first = outcomes[0]
    for other in outcomes[1:]:
        _compare(program, first, other)
    if first.result is not None and program.mutated:
        _compare_restored(program)
    return outcomes


def _compare_restored(program: Program) -> None:
    """Raise unless the arguments get their old values back if the launch fails at its end."""
    arrays = tuple(each.array() for each in program.inputs)
    with program.compiled() as kernel, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Launch(
            kernel, arrays, grid=program.grid, machine=program.machine_record, once=True
        )
        arguments = run.finished().arguments
    with contextlib.suppress(KeyboardInterrupt), arguments.restored_on_error():
        raise KeyboardInterrupt
    for each, array in zip(program.inputs, arrays, strict=True):
        if array.tobytes() != each.array().tobytes():
            raise Disagreement(program, "an argument was not restored", each.name)


def _compare_exact(program: Program, outcome: Outcome) -> None:
    """The machine's values lie within the bounds of their errors around the exact ones."""
    if outcome.result is None or outcome.result.exact is None:
        return
    run = outcome.result.exact
    if not run.has_meaning:
        return
    holes = outcome.result.unwritten
    for number, (got, output) in enumerate(
        zip(outcome.result.outputs, run.outputs, strict=True)
    ):
        if not is_float(got.dtype):
            continue
        error = np.zeros(()) if output.error is None else output.error * (1 + 2.0**-30)
        with np.errstate(invalid="ignore"):  # of a signalling NaN, too
            machine = np.asarray(from_bits(got, got.dtype), np.float64)
            close = np.abs(machine - output.value) <= error
        close |= ~np.isfinite(machine) | ~np.isfinite(output.value)
        hole = holes[number]
        if hole is not None:
            close |= hole
        # An overflow is no rounding and is reported: its consequences, such as 1/inf, lack a bound.
        if not (close.all() or any(loss.overflow for loss in run.losses)):
            raise Disagreement(
                program,
                "exact: outside its bound",
                f"output {number}: {machine[~close][:4]} of the machine, "
                f"{output.value[~close][:4]} exactly, "
                f"off by at most {np.broadcast_to(error, close.shape)[~close][:4]}",
            )


def _place(error: BaseException) -> str:
    """Return the origin of a crash: its class and the simulator's innermost line."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "/simulator/" in frame.filename]
    lines = [frame.line or "" for frame in frames if frame.filename.startswith(DRAWN)]
    where = ""
    if inside:
        where = (
            f" in {inside[-1].filename.rpartition('/simulator/')[2]} {inside[-1].name}"
        )
    calls = (
        re.findall(r"\b(?:nl|nisa)\.(?!ds\b|arange\b)\w+(?=\()", lines[-1])
        if lines
        else []
    )
    return f"{type(error).__name__}{where}" + (f" from {calls[0]}" if calls else "")


def _compare(program: Program, a: Outcome, b: Outcome) -> None:
    if a.refusal is not None or b.refusal is not None:
        _compare_refusals(program, a, b)
        return
    assert a.result is not None
    assert b.result is not None
    for output in program.mutated:
        number = [each.name for each in program.inputs].index(output.name)
        _compare_values(program, output, (a, a.arrays[number]), (b, b.arrays[number]))
    for number, output in enumerate(program.outputs):
        holes = [
            outcome.result.unwritten[number] for outcome in (a, b) if outcome.result
        ]
        if not _same_holes(*holes):
            what = f"{output.name}: unwritten in {a.mode} {holes[0]}, in {b.mode} {holes[1]}"
            raise Disagreement(program, f"written {output.opcode}", what)
        values = [
            outcome.result.outputs[number] for outcome in (a, b) if outcome.result
        ]
        _compare_values(program, output, (a, values[0]), (b, values[1]))


def _compare_values(
    program: Program, output: Output, a: tuple[Outcome, Any], b: tuple[Outcome, Any]
) -> None:
    """Raise unless two modes' arrays of one output agree."""
    (one, x), (other, y) = a, b
    difference = differs(x, y)
    if difference:
        raise Disagreement(
            program,
            f"value {output.opcode} {x.dtype}",
            f"{output.name} (last written by {output.opcode}): {difference}\n"
            f"{one.mode}: {x!r}\n{other.mode}: {y!r}",
        )


def _compare_arguments(program: Program, outcome: Outcome) -> None:
    """Raise if a launch changed an argument that it must not: all of them if it was refused."""
    for each, array in zip(program.inputs, outcome.arrays, strict=True):
        kept = not each.mutable or outcome.result is None
        if kept and array.tobytes() != each.array().tobytes():
            raise Disagreement(
                program,
                f"{outcome.mode} changed an argument",
                f"{each.name}\n{outcome}",
            )


def _compare_refusals(program: Program, a: Outcome, b: Outcome) -> None:
    if a.refusal is None or b.refusal is None:
        refused, mode = (
            (a.refusal, b.mode) if a.refusal is not None else (b.refusal, a.mode)
        )
        rule = _broken(refused)
        raise Disagreement(
            program, f"one refuses, {mode} does not: {rule}", f"{a}\n{b}"
        )
    lines = [_line(error) for error in (a.refusal, b.refusal)]
    if lines[0] != lines[1] and None not in lines:
        earlier, mode = (
            (a, b.mode) if (lines[0] or 0) < (lines[1] or 0) else (b, a.mode)
        )
        rule = _broken(earlier.refusal)
        raise Disagreement(
            program, f"one refuses, {mode} does not: {rule}", f"{a}\n{b}"
        )


def _broken(error: NkiError | None) -> str:
    """Return the broken rule, or the unmodelled feature, without sizes."""
    if error is None:
        return ""
    return error.happened if isinstance(error, NotModelledError) else error.rule


def _line(error: NkiError) -> int | None:
    """Return the kernel's rejected line; None for an error that appears only at its end."""
    where = error.location
    if where is None or not where.file.startswith(DRAWN):
        return None
    return where.line


def _same_holes(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return bool(np.array_equal(a, b))


def differs(a: Any, b: Any) -> str:
    """Return the difference between two arrays, or empty text. All NaN are equal."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
    wrong = a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")
    if is_float(a.dtype):
        x, y = (np.asarray(from_bits(v, v.dtype), dtype=np.float32) for v in (a, b))
        same = (x == y) & (np.signbit(x) == np.signbit(y))
        wrong = ~(same | (np.isnan(x) & np.isnan(y)))
    if not np.any(wrong):
        return ""
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    return (
        f"{int(np.sum(wrong))} of {a.size} elements differ, the first at {list(place)}"
    )

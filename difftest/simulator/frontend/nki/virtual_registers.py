"""Registers of the engines: loop variables and offsets whose values Python must not use.

A :class:`VirtualRegister` is a variable of 32 bits. An :class:`NkiScalar` is a value that supports
addition, subtraction and multiplication. Source: the stub ``nisa.VirtualRegister`` at v2.32.0;
scalars as NKI 0.7 documents them.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
from functools import lru_cache, partialmethod
from types import FrameType
from typing import Any, NoReturn, TypeVar

import numpy as np

from difftest.simulator.core import current, is_running
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import NkiError, frame_at, kernel_location
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.levels import check_level
from difftest.simulator.frontend.nki.constants import NKIObject
from difftest.simulator.index import is_index_integer
from difftest.simulator.misuses import UNWRITTEN_REGISTER
from difftest.simulator.trace import Iteration, Loop, LoopKind

Value = TypeVar("Value", bound="DeviceValue")


class RegisterError(NkiError, TypeError):
    """A register in Python's control flow: its value is unknown until the kernel runs."""


class DeviceValue(NKIObject):
    """An integer on the device. In ``if``, ``while``, ``range`` and ``int`` it raises TypeError."""

    __slots__ = ("_label", "_origin", "_turns", "_value", "frozen")

    _value: int | None
    frozen: bool

    def __init__(
        self,
        value: int | None,
        *,
        frozen: bool = False,
        label: str = "",
        origin: str = "",
        turns: tuple[Iteration, ...] = (),
    ) -> None:
        self._value = value
        self._label = label
        self._origin = origin
        self._turns = turns
        """The iterations whose variables the value depends on."""
        self.frozen = frozen
        """True if it is read-only, as a loop's variable is."""

    def device_value(self) -> int:
        """Return the value on the device.

        Raises
        ------
        UnwrittenError : the register was never written.
        """
        if self._value is None:
            raise UNWRITTEN_REGISTER("a register from nisa.register_alloc()")
        return self._value

    @property
    def origin(self) -> str:
        """The computation of the value on the device.

        ``=5`` for an integer of the kernel's Python, ``loaded`` from memory, the ``turn`` of a
        loop, and sums and products of these; the label of a register that the kernel writes. It
        begins with ``kept`` if Python has kept the value from another iteration, or after its loop.
        """
        if self._turns and not {*self._turns} <= {*current().loops.turns}:
            return f"{KEPT}{self._origin.removeprefix(KEPT)}"
        if self.frozen or self._turns:
            return self._origin
        return self.label

    def snapshot(self) -> DeviceValue:
        """Return the current value; a view keeps it while the register changes."""
        return DeviceValue(
            self.device_value(),
            frozen=True,
            label=self.label,
            origin=self.origin,
            turns=self._turns,
        )

    @property
    def label(self) -> str:
        """The name in the trace: a number in the launch, or its loop's."""
        if not self._label:
            self._label = new_label()
        return self._label

    def of_turn(self: Value, turn: Iteration) -> Value:
        """Return self, labelled as the variable of a loop in an iteration."""
        self._label = f"loop {turn.loop.id}"
        self._origin = "turn"
        self._turns = (turn,)
        return self

    def _values(self) -> Array:
        """Return the value as an array of one element, int64."""
        return np.array([self.device_value()], dtype=np.int64)

    def __repr__(self) -> str:
        return f"<{self._label or type(self).__name__}>"

    def _refuse(self, use: str, *others: object) -> NoReturn:
        raise RegisterError(
            "a register's value is not known while the kernel is built",
            happened=f"a register's value was used: {use}",
            received=f"{use} of {self!r}",
            remedy="loop with nl.fori_loop or nl.while_loop, index with ap(scalar_offset=...), and "
            "calculate in SBUF",
        )

    __bool__: Any = partialmethod(_refuse, "if, while, and, or, not")
    __int__ = partialmethod(_refuse, "int()")
    __float__ = partialmethod(_refuse, "float()")
    __index__ = partialmethod(_refuse, "range() or an index")
    __hash__ = object.__hash__
    __lt__ = __le__ = __gt__ = __ge__ = partialmethod(_refuse, "a comparison")
    __eq__: Any = __lt__

    def __neg__(self) -> NoReturn:
        self._refuse("arithmetic")

    _calculate: Any = partialmethod(_refuse, "arithmetic")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _calculate
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _calculate
    __mod__ = __rmod__ = _calculate


def origin_of(value: Any) -> str:
    """Return the origin of a device's value, or of an integer of the kernel's Python."""
    return value.origin if isinstance(value, DeviceValue) else f"={value}"


def note_origins(kind: str, *values: Any) -> None:
    """Record the origins of values on the tape, if there is one."""
    core = current()
    if core.tape is not None:
        core.note_on_tape(kind, *map(origin_of, values))


def computed_origin(operation: str, *values: Any) -> str:
    """Return the origin of an operation's result; a long one becomes a digest."""
    text = f"{operation}({', '.join(map(origin_of, values))})"
    if len(text) <= _LONGEST:
        return text
    return f"{operation} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


_LONGEST = 200
KEPT = "kept "
"""The beginning of the origin of a loop's variable that is used in another iteration."""


_LABEL = "register "
"""The beginning of a register's label; its number follows."""


def new_label() -> str:
    """Return a new label for the trace."""
    core = current()
    core.registers.named += 1
    return f"{_LABEL}{core.registers.named - 1}"


def register_number(label: str) -> int | None:
    """Return the number of a register from its label; None for another text."""
    number = label.removeprefix(_LABEL)
    if number == label or not number.isdecimal():
        return None
    return int(number)


class VirtualRegister(DeviceValue):
    """A variable of 32 bits: ``nisa.VirtualRegister``.

    ``while register:`` is a loop on the device that ended with NKI 0.7. All other uses of the value
    in Python's control flow are rejected.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        caller = frame_at(1)
        if caller.f_lineno not in _loops(_source(caller)):
            self._refuse("if, while, and, or, not")
        check_level("while with a register")
        value = self.device_value()
        if is_running() and current().loops.is_single_turn:
            value = int(not _has_had_its_turn(caller))
        _note_turn(caller, self, value)
        return value != 0

    def set(self, value: int, where: str) -> None:
        """Write the register.

        Raises
        ------
        KernelError : it is a loop's variable (since NKI 0.4), or the value has more than 32 bits.
        """
        if self.frozen:
            raise not_taken(
                where,
                "a register of the kernel's own to write",
                "a loop's variable",
                where,
                remedy="copy it first: nisa.register_move(nisa.register_alloc(), i)",
            )
        self._value = thirty_two_bits(value, where)
        self._turns = ()


def thirty_two_bits(value: int, where: str) -> int:
    """Return ``value`` if it fits 32 bits, signed or not.

    Raises
    ------
    KernelError : the value does not fit.
    """
    if not -(1 << 31) <= value < 1 << 32:
        raise not_taken(
            "a register",
            "32 bits, -2**31 to 2**32 - 1",
            f"{value}",
            f"{value} in {where}",
        )
    return value


class NkiScalar(DeviceValue):
    """An int32 or int64 that supports arithmetic: ``nl.NkiScalar``; int32 wraps around."""

    __slots__ = ("dtype",)

    def __init__(
        self,
        value: int,
        dtype: np.dtype[Any],
        label: str = "",
        origin: str = "",
        turns: tuple[Iteration, ...] = (),
    ) -> None:
        held = int(np.array(value, dtype=np.int64).astype(dtype))
        super().__init__(held, frozen=True, label=label, origin=origin, turns=turns)
        self.dtype = dtype

    def _with(self, name: str, operate: Any, other: Any) -> Any:
        """Return the result of an operation with a number, which wraps around in the dtype."""
        if isinstance(other, NkiScalar):
            if other.dtype != self.dtype:
                got = f"{self.dtype} and {other.dtype}"
                raise not_taken("a sum of NkiScalars", "one dtype", got, got)
        elif not is_index_integer(other) or isinstance(other, DeviceValue):
            return NotImplemented
        right = other.device_value() if isinstance(other, NkiScalar) else int(other)
        with np.errstate(all="ignore"):  # arithmetic wraps around
            pair = np.array([self.device_value(), right], dtype=np.int64)
            value = int(operate(pair[:1], pair[1:])[0])
        turns = self._turns + (other._turns if isinstance(other, NkiScalar) else ())
        origin = computed_origin(name, self, other)
        label = "" if current().tape is None else new_label()
        return NkiScalar(value, self.dtype, label, origin, turns)

    __add__ = __radd__ = partialmethod(_with, "add", np.add)
    __sub__ = partialmethod(_with, "subtract", np.subtract)
    __rsub__ = partialmethod(
        _with, "subtract from", lambda right, left: np.subtract(left, right)
    )
    __mul__ = __rmul__ = partialmethod(_with, "multiply", np.multiply)


# -- while register: -------------------------------------------------------------------------------
# The device loop of NKI until 0.6. The older parser read the statement. Here Python tests the truth
# of a register, and the kernel's source shows whether it is the test of such a loop.


def _note_turn(frame: FrameType, register: DeviceValue, value: int) -> None:
    """Record in the launch that an iteration begins, or that the loop has ended (``value`` 0).

    The end of a loop that ``break`` or ``return`` leaves is invisible, so such a loop is not
    recorded.
    """
    if not is_running():
        return
    if not _loops(_source(frame))[frame.f_lineno]:
        current().note_on_tape("left")
        return
    loops = current().loops
    at = (id(frame), frame.f_lineno)
    if at not in loops.tested:
        note_origins("while", register)
        loop = Loop(loops.count, LoopKind.DYNAMIC, kernel_location())
        loops.tested[at] = loop, loops.turns, 0
        loops.count += 1
    loop, outer, turns = loops.tested[at]
    if value == 0:
        del loops.tested[at]
        loops.turns = outer
        if turns:
            current().note_on_tape("end")
        return
    loops.tested[at] = loop, outer, turns + 1
    loops.turns = (*outer, Iteration(loop, turns, value))
    current().note_on_tape("turn")


def _has_had_its_turn(frame: FrameType) -> bool:
    """Return whether ``while register:`` has begun a turn."""
    return (id(frame), frame.f_lineno) in current().loops.tested


def _source(frame: FrameType) -> str:
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


@lru_cache(maxsize=64)
def _loops(source: str) -> dict[int, bool]:
    """Return the lines of ``while name:``, and whether only that test ends the loop.

    The body begins on another line: a condition in it would be taken for the loop's.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    return {
        node.test.lineno: not any(map(_exits, node.body))
        for node in ast.walk(tree)
        if isinstance(node, ast.While)
        and isinstance(node.test, (ast.Name, ast.Attribute))
        and node.body[0].lineno > node.test.lineno
    }


def _exits(node: ast.AST, inner: bool = False) -> bool:
    """Return whether a statement leaves a loop: ``return``, or ``break`` outside of inner loops."""
    if isinstance(node, (ast.Return, ast.Break)):
        return isinstance(node, ast.Return) or not inner
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return False
    inner = inner or isinstance(node, (ast.For, ast.While))
    return any(_exits(child, inner) for child in ast.iter_child_nodes(node))

"""Run a kernel's Python without a machine, on sizes that record their computations.

What is of NKI or of another package takes anything, and gives the like. What is left are the
conditions that the kernel and functions of its author ask of sizes, as text, such as
``((rows + columns) % 64) == 33``, and what held.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.util
import opcode
import operator
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.support.tracebacks import is_installed, is_raised_by
from difftest.testing.backends.sdk import function_of
from difftest.testing.concolic import stubs
from difftest.testing.contract.limits import ExpiredError

_LONG = 300
"""The most characters of a text. A longer one takes too long to evaluate."""
_STEPS = 10_000
"""The most steps of a run: it may wait for a value that no stub has."""
_QUIET = 300
"""The most steps without a new condition."""
_OFTEN = 8
"""The most conditions that are kept of one place, such as a loop's."""
_LARGE = 2**20
"""The largest exponent: a power has as many digits."""
_BINARY = """lt < le <= eq == ne != gt > ge >= add + sub - mul * floordiv // mod % truediv / pow **
and & or | xor ^ lshift << rshift >>"""
_UNARY = {"neg": "-{0}", "abs": "abs({0})", "invert": "~{0}"}
_FORMS = {
    "int": "({0} // 1)",
    "floor": "({0} // 1)",
    "ceil": "(-(-{0} // 1))",
}  # also of arrays
_HELD = "({} * 1)"  # what a condition is as a number, also of arrays, for which True + True is True
_TURNS = ("range", "affine_range", "sequential_range", "static_range")
_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]
_CALLED = {
    *(
        "abc",
        "bisect",
        "builtins",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
    ),
    *("math", "ml_dtypes", "numpy", "operator", "types", "typing"),
}
"""Modules whose functions a kernel may call here: of others, such as ``time``, none is called."""
_HOMES = {
    "math": "math.",
    "numpy": "np.",
}  # what their functions return is known by the call
_STOOD_FOR = {"difftest", "neuronxcc", "nki", *sys.stdlib_module_names} - _CALLED
_DENIED: Any = (
    print,
    open,
    input,
    breakpoint,
    eval,
    exec,
    __import__,
    np.save,
    np.savez,
)
_DENIED += (np.savez_compressed, np.savetxt, np.memmap, np.seterr, np.set_printoptions)
_REPLACED: Any = (*_DENIED, len, range)
_CONVERSIONS: Any = (float, int, round)
_CONSTANT = {"abc", "dataclasses", "enum", "ml_dtypes", "operator", "typing"}
_PLAIN = {
    bool,
    bytes,
    complex,
    float,
    int,
    object,
    range,
    str,
    types.NoneType,
    type(...),
}
_MANAGER = contextlib.contextmanager(iter).__code__
_ARRAY = type(
    "ndarray", (np.ndarray,), dict.fromkeys(("dump", "tofile"), lambda *_: None)
)
_FILLED: dict[Any, Any] = {dict: dict.update, list: list.extend}
_PARTS: dict[Any, str] = {
    property: "fget fset fdel",
    types.MethodType: "__func__ __self__",
}
_PARTS |= {classmethod: "__func__", staticmethod: "__func__"}


class BranchCondition(NamedTuple):
    """A condition that was asked: its place, its text, and whether it held."""

    place: tuple[
        str, int, int, int
    ]  # file, line, instruction; a number of a table's key, or 0
    text: str
    held: bool


def _asking_place(text: str) -> tuple[str, int, int, int]:
    """Return the place of the author's code that asks a condition."""
    frame = sys._getframe(1)
    is_key = False
    while frame.f_code.co_filename in (__file__, stubs.__file__) and frame.f_back:
        # The keys of a table lead apart.
        is_key = is_key or frame.f_code.co_name in ("_ask", "_hash")
        frame = frame.f_back
    key = 1 + sum(text.encode()) % 15 if is_key else 0
    file = frame.f_code.co_filename.removeprefix(stubs.DRY)
    return file, frame.f_lineno, frame.f_lasti, key


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    """Return whether a value is one of some objects; their classes compare nothing."""
    return any(value is other for other in others)


class StepLimitExceeded(BaseException):
    """A run takes too long: it waits for what no stand-in brings."""


class ConcolicRun:
    """A kernel's dry run, and the conditions that it has ``asked``, by their texts, in order."""

    def __init__(self) -> None:
        self.path_condition: dict[str, BranchCondition] = {}
        self.steps = 0.0
        self._most = float(_QUIET)
        self._made = dict[int, Any]()
        self._seen = set[str]()
        self._texts = defaultdict[Any, list[str]](list)
        self._lengths = dict[int, Any]()
        self.shown: dict[str, Any] = {}
        self.loops: dict[tuple[str, int], bool] = {}
        """The loops over sizes, by file and line: whether one had a second iteration."""
        self.grid: Sequence[Any] = (1,)  # the kernel is the last of its programs
        self.given: dict[str, Any] = dict.fromkeys(_TURNS, self.loop_range) | {
            "len": self.length,
            "ds": lambda start, size: slice(start, start + size),
            "num_programs": lambda axes=0: self.grid[axes],
            "program_id": lambda axis=0: self.grid[axis] - 1,
        }
        self.builtins = {
            **vars(builtins),
            "__import__": self.imported,
            "open": self.stub(),
        }
        self._own = ""  # the package of the kernel, which may be an installed one

    def raises(
        self, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Call a kernel, and return whether its author's code raised."""
        self._own = str(getattr(function_of(kernel), "__module__", "")).partition(".")[
            0
        ]
        try:
            self.stub_for(kernel)(*map(self.stub_for, args), **self.stub_for(kwargs))
        except BaseException as error:  # also SystemExit, and Skipped of pytest
            is_own = is_raised_by(error, kernel)
            if not is_own and isinstance(error, (ExpiredError, KeyboardInterrupt)):
                raise
            return is_own
        return False

    def record_branch(self, text: str, held: bool) -> bool:
        """Record a condition of the author's code."""
        place = _asking_place(text)
        if text not in self._seen and len(text) < _LONG:
            self._seen.add(text)
            self._most = min(_STEPS, self.steps + _QUIET)
            self.path_condition[text] = BranchCondition(place, text, held)
            self._texts[place].append(text)
            # Of a loop's iterations the first and the last stay.
            if len(self._texts[place]) > _OFTEN:
                del self.path_condition[self._texts[place].pop(_OFTEN // 2)]
        return held

    def number(self, value: Any, text: str) -> Any:
        """Return a concolic number with this text; the value itself if no text can describe it."""
        self._step()
        of = float if isinstance(value, float) else type(value)  # NumPy's is one
        kind: Any = _KINDS.get(of) if len(text) < _LONG else None
        if kind is None:
            return value
        number = kind(value)
        number.run = self
        number.plain = of(value)
        number.text = text
        return number

    def stub(self, real: Any = None, **known: Any) -> Any:
        """Return a stub for an object of NKI, such as an array with some known properties."""
        self._step()
        return _Stub(self, real, known)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._most:
            raise StepLimitExceeded

    def loop_range(self, *ends: Any, **_: Any) -> Sequence[int]:
        """Return the range of a loop; the condition is whether a third iteration runs."""
        if any(isinstance(end, _Stub) for end in ends):
            return range(2)
        turns: Sequence[int] = range(*map(concrete_value, ends))
        if any(isinstance(end, _ConcolicNumber) for end in ends):
            first, stop, step = map(_text, (*(0, *ends)[-max(2, len(ends)) :], 1)[:3])
            text = f"(({stop} - {first}) / {step}) > 2"
            loop = _asking_place(text)[:2]
            self.loops[loop] = self.loops.get(loop, False) or len(turns) > 1
            self.record_branch(text, len(turns) > 2)
            if isinstance(ends[0], _ConcolicNumber) and list(turns[:1]) > [
                0
            ]:  # each is known by the first
                known = (
                    self.number(at, f"({first} + {at - turns[0]})")
                    for at in turns[:_OFTEN]
                )
                turns = [*known, *turns[_OFTEN:]]
            self._lengths[id(turns)] = turns, f"(-(({first} - {stop}) // {step}))"
        return turns

    def length(self, of: Any) -> Any:
        """How many there are; of a loop's range the number is known."""
        _, text = self._lengths.get(id(of), (of, ""))
        return self.number(len(of), text) if text else len(of)

    def stub_for(self, value: Any) -> Any:
        """Return a copy of a value that a function names; the copy shares nothing with the author.

        A value that only the author's hooks could copy becomes a stub, as a value of NKI does.
        """
        if type(value) in _PLAIN or issubclass(type(value), (_ConcolicNumber, _Stub)):
            return value
        if id(value) not in self._made:
            self._step()
            try:
                made = self._stand_in(value)
            except Exception:  # one of its classes is another package's, for instance
                _, made = self._made[id(value)] = value, self.stub()
                vars(made).update(
                    stubs.copy_attributes(value, self.stub_for) | vars(made)
                )
            self._made[id(value)] = value, made  # kept, for its number is
        return self._made[id(value)][1]

    def _stand_in(self, value: Any) -> Any:
        kind = type(value)
        if issubclass(kind, types.ModuleType):
            return self._stand_in_of_module(value)
        if issubclass(kind, type):
            return self._stand_in_of_name(value, None)
        if not self._is_foreign(kind.__module__, *_CALLED):
            return stubs.copy_object(value, self.stub_for, self._made)
        if kind in _PARTS:
            parts = [getattr(value, part) for part in _PARTS[kind].split()]
            return kind(*map(self.stub_for, parts))
        if kind is functools.cached_property:
            return property(self.stub_for(value.func))
        function = None if kind is functools.partial else function_of(value)
        return self._stand_in_of_name(value, function)

    def _stand_in_of_module(self, module: types.ModuleType) -> Any:
        root = module.__name__.partition(".")[0]
        if self._is_foreign(module.__name__):
            return self._given_or_stub(module)
        if root in _CALLED and root not in _HOMES:
            return module
        return stubs.StubGlobals(self, vars(module))

    def _stand_in_of_name(self, value: Any, function: types.FunctionType | None) -> Any:
        """Return the copy of a class, of a ``function``, or of a value of Python or NumPy."""
        is_class = issubclass(type(value), type)
        home = getattr(function or value, "__module__", None) or type(value).__module__
        root = home.partition(".")[0]
        if self._is_foreign(home) or _is_among(value, _REPLACED):
            return self._given_or_stub(value)
        is_of_numbers = root in _HOMES and callable(value) and not is_class
        if is_of_numbers or _is_among(value, _CONVERSIONS):
            return _Function(self, value, _HOMES.get(root, ""))
        if root not in _CALLED and function is not None:
            return self._function(value, function)
        if root not in _CALLED and is_class:
            return stubs.copy_class(value, self.stub_for, self._made)
        if function is None and not is_class and root not in _CONSTANT:
            return self._of_pythons(value)
        return value

    def _given_or_stub(self, value: Any) -> Any:
        return self.given.get(getattr(value, "__name__", "")) or self.stub(value)

    def _of_pythons(self, value: Any) -> Any:
        """Return a copy of an object whose class is Python's or NumPy's."""
        kind: Any = type(value)
        if kind in stubs.ASKING:
            if len(value) > _STEPS:
                return self.stub()
            parts = map(self.stub_for, value.items() if kind is dict else value)
            made = stubs.ASKING[kind](() if kind in _FILLED else parts)
            made.shown = self.shown
            self._made[id(value)] = (value, made)
            if kind in _FILLED:  # it may hold itself
                _FILLED[kind](made, parts)
            return made
        if isinstance(value, np.ndarray):
            is_small = value.nbytes < _STEPS and not value.dtype.hasobject
            return (
                value.copy().view(_ARRAY) if is_small else self.stub(shape=value.shape)
            )
        if isinstance(wrapped := getattr(value, "__wrapped__", None), types.MethodType):
            return self.stub_for(wrapped)  # which is cached
        if isinstance(value, (np.generic, np.dtype, np.finfo, np.iinfo)):
            return value
        return stubs.copy_builtin(value, self.stub_for, self._made)

    def _is_foreign(self, home: str, *others: str) -> bool:
        """Return whether a module is NKI's, another package's, or one with side effects."""
        root = home.partition(".")[0]
        file = getattr(sys.modules.get(root), "__file__", None) or ""
        is_installed_one = root not in {*_CALLED, self._own} and is_installed(file)
        return (
            root in {*_STOOD_FOR, *others} or is_installed_one or "numpy.random" in home
        )

    def _function(self, value: Any, function: types.FunctionType) -> Any:
        """Return the author's function with stubs for the names that it uses."""
        names = function.__globals__
        closure = function.__closure__ or ()
        _, world = self._made.setdefault(
            id(names), (names, stubs.StubGlobals(self, names))
        )
        code = stubs.copy_code(function.__code__)
        cells = tuple(types.CellType() for _ in closure)
        made = types.FunctionType(code, world, function.__name__, None, cells)
        self._made[id(value)] = value, made  # it may name itself
        made.__defaults__ = self.stub_for(function.__defaults__)
        made.__kwdefaults__ = self.stub_for(function.__kwdefaults__)
        own = (
            (n, self.stub_for(v))
            for n, v in vars(function).items()
            if n != "__wrapped__"
        )
        vars(made).update(own)
        for cell, held in zip(cells, closure, strict=True):
            with contextlib.suppress(ValueError):  # it is empty
                cell.cell_contents = self.stub_for(held.cell_contents)
        is_manager = getattr(value, "__code__", None) is _MANAGER
        return contextlib.contextmanager(made) if is_manager else made

    def imported(
        self, name: str, names: Any, _: Any, wanted: Any = (), level: int = 0
    ) -> Any:
        """Return the copy of a module that a function imports; a stub if it is not loaded yet."""
        if isinstance(wanted, list):  # it is C's, such as NumPy's
            return __import__(name)
        if level:
            package = names["__package__"] or names["__name__"].rpartition(".")[0]
            name = importlib.util.resolve_name("." * level + name, package)
        loaded = sys.modules.get(name if wanted else name.partition(".")[0])
        return self.stub_for(loaded) if name in sys.modules else self.stub()


class _Function:
    """A function of Python's whose result is known by its call, or a type."""

    def __init__(self, run: ConcolicRun, function: Any, home: str) -> None:
        self._run = run
        self._function = function
        self._home = home

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(argument, _Stub) for argument in args):
            return self._run.stub()  # such as int(table[0]) of another package's table
        function = self._function
        texts = list(map(_text, args))
        if self._home == "np." and any(isinstance(of, (list, tuple)) for of in args):
            with contextlib.suppress(
                AttributeError, TypeError
            ):  # there is no such of objects
                return function(*(np.array(of, object) for of in args), **kwargs)
        result = function(*map(concrete_value, args), **kwargs)
        if kwargs or not any(
            isinstance(argument, _ConcolicNumber) for argument in args
        ):
            return result
        call = f"{self._home}{function.__name__}({', '.join(texts)})"
        result = result.item() if isinstance(result, np.generic) else result
        return self._run.number(
            result, _FORMS.get(function.__name__, call).format(*texts)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._function)


class _Stub:
    """A stub for an object of NKI: it accepts any use, and returns further stubs."""

    def __init__(self, run: ConcolicRun, real: Any, known: Mapping[str, Any]) -> None:
        self.__dict__.update(_run=run, _real=real, **known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._run.given:
            return self._run.given[name]
        real = getattr(self._real, name, None)
        is_method = isinstance(real, (types.MethodType, types.BuiltinMethodType))
        if real is None or (
            is_method and not isinstance(real.__self__, (type, types.ModuleType))
        ):
            real = self._run.stub()
        return vars(self).setdefault(name, self._run.stub_for(real))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Its shape is the one that it is called with, or that of the first array."""
        given = (
            getattr(a, "__dict__", {}).get("shape", a)
            for a in (*args, *kwargs.values())
        )
        turned = -1 if "transpose" in getattr(self._real, "__name__", "") else 1
        shapes = (
            {"shape": tuple(a[::turned])} for a in given if isinstance(a, (tuple, list))
        )
        return self._run.stub(**next(shapes, {}))

    def __getitem__(self, item: Any) -> Any:
        items, shape = (
            item if isinstance(item, tuple) else (item,),
            vars(self).get("shape", ()),
        )
        if len(items) > len(shape) or not all(
            isinstance(part, (int, slice)) for part in items
        ):
            return self._run.stub()
        taken = [
            _length(*of)
            for of in zip(shape, items, strict=False)
            if type(of[1]) is slice
        ]
        return self._run.stub(shape=(*taken, *shape[len(items) :]))

    def __iter__(self) -> Iterator[Any]:
        """As many as the caller takes apart."""
        frame = sys._getframe(1)
        step, count = frame.f_code.co_code[frame.f_lasti :][:2]
        return iter([self._run.stub() for _ in range(count if step == _UNPACK else 2)])


class _ConcolicNumber:
    """A number that is known by a text."""

    run: ConcolicRun
    plain: Any
    text: str

    def __bool__(self) -> bool:
        held = bool(self.plain)
        if self.text.endswith(" * 1)"):
            return held
        return self.run.record_branch(f"{self.text} != 0", held)

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, form: str) -> str:
        """Return a text that a longer text can recognise as this number."""
        text = _ConcolicText(format(self.plain, form))
        text.number = self.run.shown[text[:]] = self
        return text

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


class _ConcolicText(str):
    """A number's text, which asks whether it is that of another."""

    number: Any
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        is_one = isinstance(other, str) and other.isdecimal()
        return (
            bool(self.number == int(str(other))) if is_one else str.__eq__(self, other)
        )


def _length(size: Any, part: slice) -> Any:
    """How many of an axis a slice takes. Whether it counts from the end is not asked."""
    ends = [
        0 if part.start is None else part.start,
        size if part.stop is None else part.stop,
    ]
    first, last = (
        size + at if concrete_value(at) in range(-_LARGE, 0) else at for at in ends
    )
    return last - first if part.step in (None, 1) else -((first - last) // part.step)


def concrete_value(value: Any) -> Any:
    """Return a number without its recorded text."""
    return value.plain if isinstance(value, _ConcolicNumber) else value


def _text(value: Any) -> str:
    # also of NumPy's numbers
    if isinstance(value, _ConcolicNumber):
        return value.text
    return str(value)


def _method(compute: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Return a method of concolic numbers whose result has a text of this form."""

    def call(*numbers: Any) -> Any:
        if not all(isinstance(number, (int, float)) for number in numbers):
            return NotImplemented
        run = numbers[0].run
        if "/" in form or "%" in form:  # by what is not 0
            _ = bool(numbers[form.index("{1}") > form.index("{0}")])
        plain = list(map(concrete_value, numbers))
        if ("**" in form or "<<" in form) and max(map(abs, plain)) > _LARGE:
            raise StepLimitExceeded  # it has as many digits
        result = compute(*plain)
        text = form.format(*map(_text, numbers))
        if isinstance(result, bool):
            result = int(run.record_branch(text, result))
            text = _HELD.format(text)
        return run.number(result, text)

    return call


def _power(number: Any, exponent: Any, modulus: Any = None) -> Any:
    """Return ``number ** exponent``, or its remainder by a modulus."""
    if modulus is None:
        return _POWER(number, exponent)
    plain = [concrete_value(one) for one in (number, exponent, modulus)]
    if not all(isinstance(one, int) for one in plain):
        return NotImplemented
    if (
        plain[1] < 0 or plain[1] > _LARGE
    ):  # no text of operators has the same value, or ends
        return pow(*plain)
    return _POWER(number, exponent) % modulus


def _turned_power(exponent: Any, number: Any, modulus: Any = None) -> Any:
    """:func:`_power` of a number that is none of a run's: Python 3.14 asks for it."""
    if modulus is None:
        return _TURNED_POWER(exponent, number)
    return pow(
        concrete_value(number), concrete_value(exponent), concrete_value(modulus)
    )


def _hash(number: Any) -> int:
    """Of a table of the function's own it is asked whether a key is the number, as of others."""
    for table in sys._getframe(1).f_locals.values():
        for key in list(table)[:64] if type(table) in (dict, set) else ():
            _ = [number == part for part in (key if type(key) is tuple else (key,))]
    return hash(number.plain)


def _methods() -> Iterator[tuple[str, Any]]:
    """Those of numbers, by their names."""
    yield "__hash__", _hash
    yield "__deepcopy__", lambda number, _: number  # dataclasses.asdict asks for it
    yield "bit_length", _method(int.bit_length, "{0}.bit_length()")
    for name, form in _UNARY.items():
        yield f"__{name}__", _method(getattr(operator, name), form)
    for name, sign in zip(*[iter(_BINARY.split())] * 2, strict=True):
        compute = getattr(operator, f"__{name}__")
        turned = functools.partial(lambda compute, a, b: compute(b, a), compute)
        yield f"__{name}__", _method(compute, f"({{0}} {sign} {{1}})")
        yield f"__r{name}__", _method(turned, f"({{1}} {sign} {{0}})")
    yield "__pow__", _power
    yield "__rpow__", _turned_power


_POWER = _method(operator.pow, "({0} ** {1})")
_TURNED_POWER = _method(lambda exponent, number: number**exponent, "({1} ** {0})")
_METHODS = dict(_methods())
_KINDS = {
    kind: type("_Size", (_ConcolicNumber, kind), _METHODS) for kind in (int, float)
}
_TAKEN = {*_METHODS, "__setitem__", "__enter__", "__exit__", "__next__"}
for _name in _TAKEN - {"__eq__", "__ne__", "__hash__"}:
    setattr(_Stub, _name, lambda stand_in, *_: stand_in._run.stub())

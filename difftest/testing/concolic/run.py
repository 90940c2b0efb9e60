"""Run a kernel's Python without a machine, on sizes that record their computations.

A stub replaces each object of NKI and of other packages: it accepts any use. So the run consists of
the code of the kernel and of its author's functions. Each condition on sizes is recorded as text,
such as ``((rows + columns) % 64) == 33``, together with its outcome.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.util
import itertools
import opcode
import operator
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.errors import frame_at
from difftest.support.tracebacks import is_installed, is_raised_by
from difftest.testing.backends.base import is_among
from difftest.testing.backends.sdk import function_of
from difftest.testing.concolic import stubs
from difftest.testing.contract.limits import ExpiredError

_LONGEST_TEXT = 300
"""The most characters of a text. A longer one takes too long to evaluate."""
_MOST_STEPS = 10_000
"""The most steps of a run. A kernel may wait for a value that no stub has."""
_MOST_QUIET_STEPS = 300
"""The most steps without a new condition."""
_CONDITIONS_OF_PLACE = 8
"""The most conditions that are kept of one place. A loop has many."""
_LARGEST_EXPONENT = 2**20
"""A power of 2 has as many binary digits."""
_BINARY = """lt < le <= eq == ne != gt > ge >= add + sub - mul * floordiv // mod % truediv / pow **
and & or | xor ^ lshift << rshift >>"""
"""The names of the binary operators in the module ``operator``, each with its sign."""
_UNARY = {"neg": "-{0}", "abs": "abs({0})", "invert": "~{0}"}
_FORMS = {"int": "({0} // 1)", "floor": "({0} // 1)", "ceil": "(-(-{0} // 1))"}
"""Texts of functions that hold for arrays too."""
_OUTCOME = "({} * 1)"
"""The text of a condition that is used as a number. As arrays, True + True would be True."""
_LOOPS = ("range", "affine_range", "sequential_range", "static_range")
_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]
_CALLED = {
    "abc",
    "bisect",
    "builtins",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "ml_dtypes",
    "numpy",
    "operator",
    "types",
    "typing",
}
"""Modules whose functions a kernel may call. Stubs replace others, such as ``time``."""
_PREFIXES = {"math": "math.", "numpy": "np."}
"""Modules of functions of numbers -> the prefix of their calls in texts."""
_STUBBED = {"difftest", "neuronxcc", "nki", *sys.stdlib_module_names} - _CALLED
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
    np.savez_compressed,
    np.savetxt,
    np.memmap,
    np.seterr,
    np.set_printoptions,
)
"""Functions with an effect outside the run."""
_REPLACED: Any = (*_DENIED, len, range)
_CONVERSIONS: Any = (float, int, round)
_CONSTANT = {"abc", "dataclasses", "enum", "ml_dtypes", "operator", "typing"}
"""Modules whose objects need no copy."""
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
"""The class of copied arrays: they write no files."""
_FILLED: dict[Any, Any] = {dict: dict.update, list: list.extend}
_PARTS: dict[Any, str] = {
    property: "fget fset fdel",
    types.MethodType: "__func__ __self__",
    classmethod: "__func__",
    staticmethod: "__func__",
}
"""Descriptors -> the attributes that make them."""


class BranchCondition(NamedTuple):
    """A condition of a run.

    Attributes
    ----------
    place : file, line and instruction; the fourth number tells the keys of a table apart, and is 0
        for other conditions.
    text : the condition, as a Python expression of names of the domain.
    held : its outcome.
    """

    place: tuple[str, int, int, int]
    text: str
    held: bool


def _place_of(text: str) -> tuple[str, int, int, int]:
    """Return the place in the author's code where a condition is evaluated."""
    frame = frame_at(1)
    is_key = False
    while frame.f_code.co_filename in (__file__, stubs.__file__) and frame.f_back:
        is_key = is_key or frame.f_code in _KEY_COMPARISONS
        frame = frame.f_back
    key = 1 + sum(text.encode()) % 15 if is_key else 0
    file = frame.f_code.co_filename.removeprefix(stubs.DRY)
    return file, frame.f_lineno, frame.f_lasti, key


class StepLimitExceeded(BaseException):
    """A run takes too many steps: it waits for a value that no stub has."""


class ConcolicRun:
    """A dry run of a kernel.

    Attributes
    ----------
    path_condition : the recorded conditions by their texts, in order.
    steps : the number of steps so far.
    formatted : the numbers whose texts the kernel formatted, by these texts.
    loops : the loops over sizes, by file and line: whether one had a second iteration.
    grid : the sizes of the launch grid. The kernel runs as the last program of the grid.
    """

    def __init__(self) -> None:
        self.path_condition: dict[str, BranchCondition] = {}
        self.steps = 0.0
        self.formatted: dict[str, Any] = {}
        self.loops: dict[tuple[str, int], bool] = {}
        self.grid: Sequence[Any] = (1,)
        self._most_steps = float(_MOST_QUIET_STEPS)
        self._copies = dict[int, Any]()
        """By ``id``: each copied object and its copy. The object stays alive, so its id is its."""
        self._seen = set[str]()
        self._texts = defaultdict[Any, list[str]](list)
        """The texts of the conditions of each place."""
        self._lengths = dict[int, Any]()
        """By ``id``: the range of a loop over sizes, and the text of its length."""
        self._keys = dict[Any, None]()
        """Integers in the keys of tables that the author's functions make."""
        self._compared = set[str]()
        """The texts of numbers that have been compared with these keys."""
        self.known: dict[str, Any] = dict.fromkeys(_LOOPS, self.loop_range) | {
            "len": self.length,
            "ds": lambda start, size: slice(start, start + size),
            "num_programs": lambda axes=0: self.grid[axes],
            "program_id": lambda axis=0: self.grid[axis] - 1,
        }
        """Functions of Python and NKI whose results are known, by name."""
        self.builtins = {
            **vars(builtins),
            "__import__": self.imported,
            "open": self.stub(),
        }
        self._own = ""
        """The package of the kernel, which may be an installed one."""

    def raises(
        self, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Call a kernel, and return whether its author's code raised."""
        module = str(getattr(function_of(kernel), "__module__", ""))
        self._own = module.partition(".")[0]
        try:
            self.stub_for(kernel)(*map(self.stub_for, args), **self.stub_for(kwargs))
        except BaseException as error:  # also SystemExit, and Skipped of pytest
            is_own = is_raised_by(error, kernel)
            if not is_own and isinstance(error, (ExpiredError, KeyboardInterrupt)):
                raise
            return is_own
        return False

    def record_branch(self, text: str, held: bool) -> bool:
        """Record a condition of the author's code, and return its outcome."""
        place = _place_of(text)
        if text not in self._seen and len(text) < _LONGEST_TEXT:
            self._seen.add(text)
            self._most_steps = min(_MOST_STEPS, self.steps + _MOST_QUIET_STEPS)
            self.path_condition[text] = BranchCondition(place, text, held)
            self._texts[place].append(text)
            # The first and the last iterations of a loop stay.
            if len(self._texts[place]) > _CONDITIONS_OF_PLACE:
                middle = self._texts[place].pop(_CONDITIONS_OF_PLACE // 2)
                del self.path_condition[middle]
        return held

    def compare_with_keys(self, number: _ConcolicNumber) -> None:
        """Record whether a number equals a key of a table, as the lookup by its hash does not."""
        if number.text not in self._compared:
            self._compared.add(number.text)
            for key in itertools.islice(self._keys, stubs.MOST_KEYS):
                _ = bool(number == key)

    def number(self, value: Any, text: str) -> Any:
        """Return a concolic number with this text; the value itself if no text can describe it."""
        self._step()
        # np.float64 is a subclass of float.
        plain: Any = float if isinstance(value, float) else type(value)
        kind: Any = _KINDS.get(plain) if len(text) < _LONGEST_TEXT else None
        if kind is None:
            return value
        number = kind(value)
        number.run = self
        number.plain = plain(value)
        number.text = text
        return number

    def stub(self, real: Any = None, **known: Any) -> Any:
        """Return a stub for an object of NKI, such as an array with some known properties."""
        self._step()
        return _Stub(self, real, known)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._most_steps:
            raise StepLimitExceeded

    def loop_range(self, *ends: Any, **_: Any) -> Sequence[int]:
        """Return the range of a loop; its condition is whether a third iteration runs."""
        if any(isinstance(end, _Stub) for end in ends):
            return range(2)
        iterations: Sequence[int] = range(*map(concrete_value, ends))
        if not any(isinstance(end, _ConcolicNumber) for end in ends):
            return iterations
        bounds = (0, *ends) if len(ends) == 1 else ends
        first, stop, step = map(_text, (*bounds, 1)[:3])
        text = f"(({stop} - {first}) / {step}) > 2"
        loop = _place_of(text)[:2]
        self.loops[loop] = self.loops.get(loop, False) or len(iterations) > 1
        self.record_branch(text, len(iterations) > 2)
        if isinstance(ends[0], _ConcolicNumber) and list(iterations[:1]) > [0]:
            # The text of an iteration has its distance from the first.
            known = [
                self.number(at, f"({first} + {at - iterations[0]})")
                for at in iterations[:_CONDITIONS_OF_PLACE]
            ]
            iterations = known + list(iterations[_CONDITIONS_OF_PLACE:])
        length = f"(-(({first} - {stop}) // {step}))"
        self._lengths[id(iterations)] = iterations, length
        return iterations

    def length(self, items: Any) -> Any:
        """Return the number of items; it has a text for the range of a loop over sizes."""
        _, text = self._lengths.get(id(items), (items, ""))
        return self.number(len(items), text) if text else len(items)

    def stub_for(self, value: Any) -> Any:
        """Return a copy of a value that a function names; the copy shares nothing with the author.

        A value that only the author's hooks could copy becomes a stub, as a value of NKI does.
        """
        if type(value) in _PLAIN or issubclass(type(value), (_ConcolicNumber, _Stub)):
            return value
        if id(value) not in self._copies:
            self._step()
            try:
                copy = self._copy(value)
            except Exception:  # for instance, one of its classes is another package's
                copy = self.stub()
                self._copies[id(value)] = value, copy
                copied = stubs.copy_attributes(value, self.stub_for)
                vars(copy).update(copied | vars(copy))
            self._copies[id(value)] = value, copy
        return self._copies[id(value)][1]

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if issubclass(kind, types.ModuleType):
            return self._copy_of_module(value)
        if issubclass(kind, type):
            return self._copy_of_named(value, None)
        if not self._is_foreign(kind.__module__, *_CALLED):
            return stubs.copy_object(value, self.stub_for, self._copies)
        if kind in _PARTS:
            parts = [getattr(value, part) for part in _PARTS[kind].split()]
            return kind(*map(self.stub_for, parts))
        if kind is functools.cached_property:
            return property(self.stub_for(value.func))
        function = None if kind is functools.partial else function_of(value)
        return self._copy_of_named(value, function)

    def _copy_of_module(self, module: types.ModuleType) -> Any:
        root = module.__name__.partition(".")[0]
        if self._is_foreign(module.__name__):
            return self._known_or_stub(module)
        if root in _CALLED and root not in _PREFIXES:
            return module
        return stubs.StubGlobals(self, vars(module))

    def _copy_of_named(self, value: Any, function: types.FunctionType | None) -> Any:
        """Return the copy of a class, of a ``function``, or of a value of Python or NumPy."""
        is_class = issubclass(type(value), type)
        home = getattr(function or value, "__module__", None) or type(value).__module__
        root = home.partition(".")[0]
        if self._is_foreign(home) or is_among(value, _REPLACED):
            return self._known_or_stub(value)
        is_of_numbers = root in _PREFIXES and callable(value) and not is_class
        if is_of_numbers or is_among(value, _CONVERSIONS):
            return _Function(self, value, _PREFIXES.get(root, ""))
        if root not in _CALLED:
            return self._copy_of_own(value, function)
        if root in _CONSTANT or function is not None or is_class:
            return value
        return self._copy_of_builtin(value)

    def _copy_of_own(self, value: Any, function: types.FunctionType | None) -> Any:
        """Return the copy of an author's function, class or value."""
        if function is not None:
            return self._copy_of_function(value, function)
        if issubclass(type(value), type):
            return stubs.copy_class(value, self.stub_for, self._copies)
        return self._copy_of_builtin(value)

    def _known_or_stub(self, value: Any) -> Any:
        return self.known.get(getattr(value, "__name__", "")) or self.stub(value)

    def _copy_of_builtin(self, value: Any) -> Any:
        """Return a copy of an object whose class is Python's or NumPy's."""
        if type(value) in stubs.COMPARING:
            return self._copy_of_collection(value)
        if isinstance(value, np.ndarray):
            if value.nbytes < _MOST_STEPS and not value.dtype.hasobject:
                return value.copy().view(_ARRAY)
            return self.stub(shape=value.shape)
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, types.MethodType):  # of a method that is cached
            return self.stub_for(wrapped)
        if isinstance(value, (np.generic, np.dtype, np.finfo, np.iinfo)):
            return value
        return stubs.copy_builtin(value, self.stub_for, self._copies)

    def _copy_of_collection(self, value: Any) -> Any:
        """Return a copy of a collection that compares keys; a stub for a large collection."""
        kind: Any = type(value)
        if len(value) > _MOST_STEPS:
            return self.stub()
        parts = map(self.stub_for, value.items() if kind is dict else value)
        copy = stubs.COMPARING[kind](() if kind in _FILLED else parts)
        copy.formatted = self.formatted
        self._copies[id(value)] = (value, copy)
        if kind in _FILLED:  # later, because it may contain itself
            _FILLED[kind](copy, parts)
        return copy

    def _is_foreign(self, home: str, *others: str) -> bool:
        """Return whether a module is NKI's, another package's, or one with side effects."""
        root = home.partition(".")[0]
        if root in _STUBBED or root in others or "numpy.random" in home:
            return True
        file = getattr(sys.modules.get(root), "__file__", None) or ""
        return root not in _CALLED and root != self._own and is_installed(file)

    def _copy_of_function(self, value: Any, function: types.FunctionType) -> Any:
        """Return the author's function with stubs for the names that it uses."""
        names = function.__globals__
        closure = function.__closure__ or ()
        _, world = self._copies.setdefault(
            id(names), (names, stubs.StubGlobals(self, names))
        )
        self._keys.update(dict.fromkeys(stubs.table_keys(function.__code__)))
        code = stubs.copy_code(function.__code__)
        cells = tuple(types.CellType() for _ in closure)
        copy = types.FunctionType(code, world, function.__name__, None, cells)
        self._copies[id(value)] = value, copy  # before its parts: it may name itself
        copy.__defaults__ = self.stub_for(function.__defaults__)
        copy.__kwdefaults__ = self.stub_for(function.__kwdefaults__)
        for name, attribute in vars(function).items():
            if name != "__wrapped__":
                vars(copy)[name] = self.stub_for(attribute)
        for cell, original in zip(cells, closure, strict=True):
            with contextlib.suppress(ValueError):  # the cell is empty
                cell.cell_contents = self.stub_for(original.cell_contents)
        is_manager = getattr(value, "__code__", None) is _MANAGER
        return contextlib.contextmanager(copy) if is_manager else copy

    def imported(
        self, name: str, names: Any, _: Any, wanted: Any = (), level: int = 0
    ) -> Any:
        """Return the copy of a module that a function imports; a stub if it is not loaded yet."""
        if isinstance(wanted, list):  # C code imports, such as NumPy's
            return __import__(name)
        if level:
            package = names["__package__"] or names["__name__"].rpartition(".")[0]
            name = importlib.util.resolve_name("." * level + name, package)
        loaded = sys.modules.get(name if wanted else name.partition(".")[0])
        return self.stub_for(loaded) if name in sys.modules else self.stub()


class _Function:
    """A function of Python or NumPy that records its call in the text of its result, or a type."""

    def __init__(self, run: ConcolicRun, function: Any, prefix: str) -> None:
        self._run = run
        self._function = function
        self._prefix = prefix

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(argument, _Stub) for argument in args):
            return self._run.stub()
        is_of_lists = any(isinstance(argument, (list, tuple)) for argument in args)
        if self._prefix == "np." and is_of_lists:
            # Not all functions of NumPy accept arrays of objects.
            with contextlib.suppress(AttributeError, TypeError):
                arrays = [np.array(argument, object) for argument in args]
                return self._function(*arrays, **kwargs)
        result = self._function(*map(concrete_value, args), **kwargs)
        is_recorded = any(isinstance(argument, _ConcolicNumber) for argument in args)
        if kwargs or not is_recorded:
            return result
        if isinstance(result, np.generic):
            result = result.item()
        return self._run.number(result, self._text_of_call(list(map(_text, args))))

    def _text_of_call(self, texts: list[str]) -> str:
        name = self._function.__name__
        if name in _FORMS:
            return _FORMS[name].format(*texts)
        return f"{self._prefix}{name}({', '.join(texts)})"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._function)


class _Stub:
    """A stub for an object of NKI: it accepts any use, and returns further stubs.

    Parameters
    ----------
    run : the run that the stub belongs to.
    real : the object, if there is one.
    known : attributes that the stub has, such as its shape.
    """

    def __init__(self, run: ConcolicRun, real: Any, known: Mapping[str, Any]) -> None:
        self.__dict__.update(_run=run, _real=real, **known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._run.known:
            return self._run.known[name]
        real = getattr(self._real, name, None)
        if real is None or _is_method_of_object(real):
            real = self._run.stub()
        return vars(self).setdefault(name, self._run.stub_for(real))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a stub with the shape of the first argument that is a shape or has one."""
        step = -1 if "transpose" in getattr(self._real, "__name__", "") else 1
        for argument in (*args, *kwargs.values()):
            shape = getattr(argument, "__dict__", {}).get("shape", argument)
            if isinstance(shape, (tuple, list)):
                return self._run.stub(shape=tuple(shape[::step]))
        return self._run.stub()

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        shape = vars(self).get("shape", ())
        is_static = all(isinstance(item, (int, slice)) for item in items)
        if len(items) > len(shape) or not is_static:
            return self._run.stub()
        taken = [
            _length(size, item)
            for size, item in zip(shape, items, strict=False)
            if type(item) is slice
        ]
        return self._run.stub(shape=(*taken, *shape[len(items) :]))

    def __iter__(self) -> Iterator[Any]:
        """Yield as many stubs as the caller unpacks; else two."""
        frame = frame_at(1)
        instruction, count = frame.f_code.co_code[frame.f_lasti :][:2]
        if instruction != _UNPACK:
            count = 2
        return iter([self._run.stub() for _ in range(count)])


def _is_method_of_object(value: Any) -> bool:
    """Return whether a value is a method that is bound to an object other than a class."""
    if not isinstance(value, (types.MethodType, types.BuiltinMethodType)):
        return False
    return not isinstance(value.__self__, (type, types.ModuleType))


class _ConcolicNumber:
    """A number and the text of its computation.

    Attributes
    ----------
    run : the run that records its conditions.
    plain : the number as Python's own.
    text : its computation, as a Python expression of names of the domain.
    """

    run: ConcolicRun
    plain: Any
    text: str

    def __bool__(self) -> bool:
        held = bool(self.plain)
        if self.text.endswith(" * 1)"):  # the condition has been recorded
            return held
        return self.run.record_branch(f"{self.text} != 0", held)

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, form: str) -> str:
        """Return a text that a comparing collection recognises as the number."""
        text = _ConcolicText(format(self.plain, form))
        text.number = self.run.formatted[text[:]] = self
        return text

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


class _ConcolicText(str):
    """The formatted text of a number. Its comparison compares the number."""

    number: Any
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and other.isdecimal():
            return bool(self.number == int(str(other)))
        return str.__eq__(self, other)


def _length(size: Any, part: slice) -> Any:
    """Return the number of elements in a slice of an axis.

    The sign of a bound, which decides whether it counts from the end, is not a condition.
    """
    first = _from_front(0 if part.start is None else part.start, size)
    last = _from_front(size if part.stop is None else part.stop, size)
    if part.step in (None, 1):
        return last - first
    return -((first - last) // part.step)


def _from_front(bound: Any, size: Any) -> Any:
    """Return a bound of a slice, counted from the front of an axis."""
    if concrete_value(bound) in range(-_LARGEST_EXPONENT, 0):
        return size + bound
    return bound


def concrete_value(value: Any) -> Any:
    """Return a number without its recorded text."""
    return value.plain if isinstance(value, _ConcolicNumber) else value


def _text(value: Any) -> str:
    if isinstance(value, _ConcolicNumber):
        return value.text
    return str(value)  # the repr of NumPy's numbers has their type


def _method(compute: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Return a method of concolic numbers whose result has a text of this form."""
    is_division = "/" in form or "%" in form
    is_power = "**" in form or "<<" in form

    def call(*numbers: Any) -> Any:
        if not all(isinstance(number, (int, float)) for number in numbers):
            return NotImplemented
        run = numbers[0].run
        if is_division:
            divisor = numbers[form.index("{1}") > form.index("{0}")]
            _ = bool(divisor)  # records whether it is 0
        plain = list(map(concrete_value, numbers))
        if is_power and max(map(abs, plain)) > _LARGEST_EXPONENT:
            raise StepLimitExceeded  # the result has as many digits
        result = compute(*plain)
        text = form.format(*map(_text, numbers))
        if isinstance(result, bool):
            result = int(run.record_branch(text, result))
            text = _OUTCOME.format(text)
        return run.number(result, text)

    return call


def _power(number: Any, exponent: Any, modulus: Any = None) -> Any:
    """Return ``number ** exponent``, or its remainder by a modulus."""
    if modulus is None:
        return _POWER(number, exponent)
    plain = [concrete_value(part) for part in (number, exponent, modulus)]
    if not all(isinstance(part, int) for part in plain):
        return NotImplemented
    if not 0 <= plain[1] <= _LARGEST_EXPONENT:
        return pow(*plain)  # no operators have this value, or they would not end
    return _POWER(number, exponent) % modulus


def _turned_power(exponent: Any, number: Any, modulus: Any = None) -> Any:
    """Return :func:`_power` of a plain number. Python 3.14 calls it with a modulus."""
    if modulus is None:
        return _TURNED_POWER(exponent, number)
    return pow(
        concrete_value(number), concrete_value(exponent), concrete_value(modulus)
    )


def _hash(number: Any) -> int:
    number.run.compare_with_keys(number)
    return hash(number.plain)


_KEY_COMPARISONS = {ConcolicRun.compare_with_keys.__code__, stubs.COMPARISON}
"""The functions that compare a number with the keys of a table."""


def _methods() -> Iterator[tuple[str, Any]]:
    """Yield the methods of concolic numbers, by name."""
    yield "__hash__", _hash
    yield "__deepcopy__", lambda number, _: number  # dataclasses.asdict copies deeply
    yield "bit_length", _method(int.bit_length, "{0}.bit_length()")
    for name, form in _UNARY.items():
        yield f"__{name}__", _method(getattr(operator, name), form)
    words = _BINARY.split()
    for name, sign in zip(words[::2], words[1::2], strict=True):
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
_ACCEPTED = {*_METHODS, "__setitem__", "__enter__", "__exit__", "__next__"}
for _name in _ACCEPTED - {"__eq__", "__ne__", "__hash__"}:
    setattr(_Stub, _name, lambda stub, *_: stub._run.stub())

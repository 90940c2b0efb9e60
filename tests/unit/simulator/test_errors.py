"""The parts of an error: the event, the rule, the received value, the limit, line and remedy."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import difftest.simulator
from difftest.simulator import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    NkiError,
    NotModelledError,
    OutOfBoundsError,
    ShapeError,
    UnwrittenError,
    launch,
)
from difftest.simulator.errors import (
    is_inside,
    kernel_location,
    kernel_stack,
    relative_path,
)
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every

PACKAGE = Path(difftest.simulator.__file__).parent
BARE = re.compile(r"\braise ((?:Value|Type|Index|Runtime|Key)Error)\(")


@pytest.fixture
def unquoted():
    """Whole texts are tested here."""


@every(
    "error, builtin",
    [
        (LimitError, ValueError),
        (ShapeError, ValueError),
        (DtypeError, TypeError),
        (BufferError, ValueError),
        (OutOfBoundsError, IndexError),
        (UnwrittenError, ValueError),
        (KernelError, RuntimeError),
        (NotModelledError, NotImplementedError),
    ],
)
def test_each_error_is_the_builtin_that_python_code_expects(error, builtin):
    assert issubclass(error, NkiError)
    assert issubclass(error, builtin)


def test_the_location_is_the_innermost_line_outside_the_simulator():
    here = kernel_location()
    assert here.file == __file__
    assert here.text == "here = kernel_location()"
    assert (
        str(here) == f"{relative_path(__file__)}:{here.line}: here = kernel_location()"
    )


def called():
    return helper()


def helper():
    return [kernel_stack() for _ in range(2)][-1]


def test_the_stack_is_the_kernels_lines_up_to_the_launch():
    stacks = []
    launch(lambda: stacks.append(called()))
    texts = [line.text for line in stacks[0]]
    assert texts[-3:] == [
        "return [kernel_stack() for _ in range(2)][-1]",
        "return helper()",
        "launch(lambda: stacks.append(called()))",
    ]
    # the comprehension's own frame, before Python 3.12
    assert set(texts[:-3]) <= {texts[-3]}
    assert {line.file for line in stacks[0]} == {__file__}


def test_a_stack_knows_the_lines_of_one_function_apart():
    here = kernel_stack()[0]
    there = kernel_stack()[0]
    assert there.line == here.line + 1
    assert kernel_stack()[0].line == here.line + 3


def test_whether_code_is_the_simulators():
    assert is_inside(launch.__code__)
    assert not is_inside(test_whether_code_is_the_simulators.__code__)


# -- complete texts, as a person reads them ----------------------------------------------------


def too_many_partitions():
    nl.ndarray((256, 1), dtype=nl.float32, buffer=nl.sbuf, name="a_tile")


def beyond_the_tensor():
    table = nl.ndarray((128, 4000), nl.float32, buffer=nl.hbm, name="table")
    p, x = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(8):
        nl.store(table[p, 512 * i + x], 0.0)


def never_written():
    totals = nl.ndarray((4, 8), nl.float32, name="totals")
    totals[:, 0:6] = nl.zeros((4, 6), nl.float32)
    nisa.tensor_reduce(nl.add, totals, axis=1)


TEXTS = {
    too_many_partitions: """\
a tile has 256 partitions
  rule:     the partition size of a tile is at most 128
  received: a_tile [256, 1] float32 in sbuf: 256 partitions
  limit:    128 partitions (trn2, nl.tile_size.pmax)
  where:    {file}:{line}: nl.ndarray((256, 1), dtype=nl.float32, buffer=nl.sbuf, name="a_tile")
  remedy:   loop over the first dimension in tiles of at most 128, and put the rest into the \
free dimension""",
    beyond_the_tensor: """\
an access left its tensor: index 4095 of 4000
  rule:     an access stays inside its tensor
  received: indices 3584 to 4095 on axis 1 of table [128, 4000] float32 in private_hbm
  limit:    0 to 3999
  where:    {file}:{line}: nl.store(table[p, 512 * i + x], 0.0)
  remedy:   correct the loop's bounds, or give the instruction a mask (NKI does not wrap \
negative indices)""",
    never_written: """\
an instruction read elements that were never written
  rule:     an instruction reads only elements that were written before
  received: 8 of 32 elements of totals [4, 8] float32 in sbuf were never written, the first at \
[0, 6]; it was made at {file}:{first}: totals = nl.ndarray((4, 8), nl.float32, name="totals")
  where:    {file}:{line}: nisa.tensor_reduce(nl.add, totals, axis=1)
  remedy:   write the tensor first (nl.zeros, nl.load, an instruction's result), or read only the \
part that is written""",
}


@every("kernel", TEXTS)
def test_the_whole_text_of_an_error_is_as_expected(kernel):
    with pytest.raises(NkiError) as caught:
        launch(kernel)
    lines, first = inspect.getsourcelines(kernel)
    place = {
        "file": relative_path(__file__),
        "first": first + 1,
        "line": first + len(lines) - 1,
    }
    expected = TEXTS[kernel].format(**place)
    assert str(caught.value) == expected


# -- every error of the package ----------------------------------------------------------------


def families(cls):
    """The class and all that derive from it."""
    return {
        cls,
        *(found for derived in cls.__subclasses__() for found in families(derived)),
    }


ERRORS = {cls.__name__ for cls in families(NkiError)}


def made_errors():
    """Every call in the package that makes an error: (file, line, rule, keywords)."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                yield (
                    file.name,
                    node.lineno,
                    node.args[0],
                    {keyword.arg: keyword.value for keyword in node.keywords},
                )


def test_every_error_says_what_happened_and_what_was_received():
    made = list(made_errors())
    assert len(made) > 100
    for file, line, rule, keywords in made:
        for part in ("happened", "received"):
            said = keywords.get(part)
            assert said is not None, f"{file}:{line} lacks {part}="
            empty = isinstance(said, ast.Constant) and not said.value
            assert not empty, f"{file}:{line} has an empty {part}="
        copied = ast.dump(keywords["happened"]) == ast.dump(rule)
        assert not copied, f"{file}:{line} has the rule as its headline"


def test_the_package_raises_no_bare_errors_but_for_its_own_misuse():
    """Kernels and arguments meet NkiError alone; ValueError and RuntimeError are programmers'."""
    bare = {
        (file.name, name)
        for file in PACKAGE.rglob("*.py")
        for name in BARE.findall(file.read_text(encoding="utf-8"))
    }
    of_tables = {
        (name, "TypeError") for name in ("dispatch.py", "lifted.py", "__init__.py")
    }
    assert (
        bare
        == {("record.py", "ValueError"), ("install.py", "RuntimeError")} | of_tables
    )


def test_no_error_is_made_without_its_headline():
    with pytest.raises(TypeError, match="happened"):
        KernelError("the rule", received="it")

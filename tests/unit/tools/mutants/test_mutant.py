import linecache

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.mutant import (
    Mutant,
    apply_mutant,
    mutable_functions,
    qualified_name,
    read_source,
)
from tests.unit.tools.mutants import sample


def mutant_of(kernel, operator):
    return next(
        one for one in mutants_of(mutable_functions(kernel)) if one.operator == operator
    )


def test_a_kernel_is_made_of_its_authors_functions():
    assert [one.__name__ for one in mutable_functions(sample.scaled)] == [
        "scaled",
        "loaded",
    ]
    assert [one.__name__ for one in mutable_functions(sample.twice)] == ["twice"]


def test_all_holders_of_a_function_run_the_mutant_until_it_ends():
    mutant = mutant_of(sample.twice, "another operation")
    (function,) = mutable_functions(sample.twice)
    ones = np.ones((2, 3), np.float32)

    def result():
        return launch(sample.twice, [ones]).outputs[0][0, 0]

    assert result() == 2.0
    with apply_mutant(function, mutant):
        assert result() == 0.0
        line = linecache.getline(mutant.file, mutant.lines[0])
    assert "classic_nl.subtract(tile, tile)" in line
    assert result() == 2.0
    assert "classic_nl.add(tile, tile)" in linecache.getline(
        mutant.file, mutant.lines[0]
    )


def test_a_diff_is_the_lines_that_change():
    assert mutant_of(sample.scaled, "check removed").diff() == [
        '-    assert rows <= 128, f"at most 128 rows: got {rows}"',
        "+    pass",
    ]


def test_a_mutant_keeps_its_key_where_the_file_moves_around_it(tmp_path):
    keys = []
    for number, before in enumerate(("", "import math\n\n\n")):
        file = tmp_path / f"{number}.py"
        text = f"{before}def f(a, b):\n    return a + b\n"
        file.write_text(text)
        at = text.index("a + b")
        line = before.count("\n") + 1
        changes = [read_source(str(file)).edit(at, at + 5, text) for text in "ab"]
        keys.append(
            [Mutant(str(file), f"f:{line}", "term dropped", one).key for one in changes]
        )
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2


def test_a_file_that_is_no_python_is_rejected():
    (function,) = mutable_functions(sample.twice)
    file = function.__code__.co_filename
    start = mutant_of(sample.twice, "last tile missing").change.start
    change = read_source(file).edit(start, start, "]")
    broken = Mutant(file, qualified_name(function), "nonsense", change)
    code = function.__code__
    with pytest.raises(SyntaxError), apply_mutant(function, broken):
        pass
    assert function.__code__ is code

import linecache

import numpy as np
import pytest

from difftest.report.mutants.instructions import mutants_of
from difftest.report.mutants.mutant import Mutant, functions_of, name_of, planted, source_of
from difftest.simulator import launch
from tests.unit.report.mutants import sample


def mutant_of(kernel, operator):
    return next(one for one in mutants_of(functions_of(kernel)) if one.operator == operator)


def test_a_kernel_is_made_of_its_authors_functions():
    assert [one.__name__ for one in functions_of(sample.scaled)] == ["scaled", "loaded"]
    assert [one.__name__ for one in functions_of(sample.twice)] == ["twice"]


def test_whatever_holds_the_function_runs_the_change_and_then_no_more():
    mutant = mutant_of(sample.twice, "another operation")
    (function,) = functions_of(sample.twice)
    ones = np.ones((2, 3), np.float32)

    def result():
        return launch(sample.twice, [ones]).outputs[0][0, 0]

    assert result() == 2.0
    with planted(function, mutant):
        assert result() == 0.0
        line = linecache.getline(mutant.file, mutant.lines[0])
    assert "classic_nl.subtract(tile, tile)" in line
    assert result() == 2.0
    assert "classic_nl.add(tile, tile)" in linecache.getline(mutant.file, mutant.lines[0])


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
        at, line = text.index("a + b"), before.count("\n") + 1
        changes = [source_of(str(file)).edit(at, at + 5, text) for text in "ab"]
        keys.append([Mutant(str(file), f"f:{line}", "term dropped", one).key for one in changes])
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2


def test_what_is_no_python_is_refused():
    (function,) = functions_of(sample.twice)
    file = function.__code__.co_filename
    start = mutant_of(sample.twice, "last tile missing").change.start
    change = source_of(file).edit(start, start, "]")
    broken = Mutant(file, name_of(function), "nonsense", change)
    code = function.__code__
    with pytest.raises(SyntaxError), planted(function, broken):
        pass
    assert function.__code__ is code

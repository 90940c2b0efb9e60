"""Each planted bug, on the line that it changes."""

import ast

import pytest

from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.operators import BUGS
from tests.every import every

# A bug, a line, and all lines that come of it.
LINES = [
    (
        "last tile missing",
        "for i in range(0, n, t): f(i)",
        ["for i in range(0, n - t, t): f(i)"],
    ),
    (
        "loop one turn too long",
        "for i in nl.affine_range(n // t): f(i)",
        ["for i in nl.affine_range((n // t) + 1): f(i)"],
    ),
    ("bound off by one", "y = x[a:b]", ["y = x[a:b - 1]"]),
    ("bound off by one", "y = slice(a, b + c)", ["y = slice(a, (b + c) - 1)"]),
    ("bound off by one", "y = slice(b)", []),
    ("slice shifted", "y = x[a:b, :]", ["y = x[a + 1:b + 1, :]"]),
    ("slice shifted", "y = slice(a, b)", ["y = slice(a + 1, b + 1)"]),
    ("bound of the last tile dropped", "y = min(a, b)", ["y = a", "y = b"]),
    (
        "indices swapped",
        "y = w[:, o, k, 0:2]",
        ["y = w[:, k, o, 0:2]", "y = w[:, o, 0:2, k]"],
    ),
    ("index fixed", "y = x[i, :, 3]", ["y = x[0, :, 3]"]),
    ("index fixed", "y = x.shape[i]", []),
    ("term dropped", "y = rows + halo", ["y = rows"]),
    ("one short", "y = rows + halo", ["y = (rows + halo - 1)"]),
    ("another sign", "y = rows + halo", ["y = (rows - halo)"]),
    (
        "constant off by one",
        "y = f(1, 0.5, True)",
        ["y = f(2, 0.5, True)", "y = f(1, 1.0, True)"],
    ),
    ("total overwritten", "total += f(x)", ["total = f(x)"]),
    ("comparison at its boundary", "y = k > 0", ["y = k >= 0"]),
    ("comparison at its boundary", "assert a == b", []),
    (
        "condition turned round",
        "y = a if k > 0 else b",
        ["y = a if not (k > 0) else b"],
    ),
    ("check removed", "assert n <= 128, f'at most {128}: got {n + 1}'", ["pass"]),
    (
        "check of one thing less",
        "assert a == b == c",
        ["assert (a == b)", "assert (b == c)"],
    ),
    (
        "check of one thing less",
        "assert not a or b <= c",
        ["assert (not a)", "assert (b <= c)"],
    ),
    ("transpose left out", "y = nisa.nc_transpose(x)", ["y = x"]),
    (
        "transpose left out",
        "nisa.nc_transpose(dst=bank, data=x[:, 0:n])",
        ["nisa.tensor_copy(dst=bank, src=x[:, 0:n])"],
    ),
    (
        "instruction passed over",
        "y = nisa.tensor_scalar(total, nl.add, bias)",
        ["y = total"],
    ),
    ("instruction left out", "nisa.core_barrier(data=x, cores=(0, 1))", ["pass"]),
    ("instruction left out", "tile[...] = nisa.tensor_copy(bank)", ["pass"]),
    (
        "operands swapped",
        "nisa.nc_matmul(dst=d, stationary=a, moving=b, **options)",
        ["nisa.nc_matmul(dst=d, stationary=b, moving=a, **options)"],
    ),
    ("operands swapped", "nisa.tensor_tensor(dst=d, data1=a, data2=b, op=nl.add)", []),
    ("operands swapped", "y = nl.subtract(a, b)", ["y = nl.subtract(b, a)"]),
    (
        "one operand twice",
        "nisa.tensor_tensor(dst=d, data1=a, data2=b, op=nl.add)",
        ["nisa.tensor_tensor(dst=d, data1=a, data2=a, op=nl.add)"],
    ),
    (
        "argument dropped",
        "nisa.activation(dst=d, op=nl.exp, data=x, bias=b, scale=s)",
        [
            "nisa.activation(dst=d, op=nl.exp, data=x, bias=b)",
            "nisa.activation(dst=d, op=nl.exp, data=x, scale=s)",
        ],
    ),
    (
        "accumulation flag",
        "nisa.nc_matmul(dst=d, accumulate=k > 0)",
        [
            "nisa.nc_matmul(dst=d, accumulate=False)",
            "nisa.nc_matmul(dst=d, accumulate=True)",
        ],
    ),
    ("flag flipped", "f(negate=True)", ["f(negate=False)"]),
    ("another operation", "y = np.max", ["y = np.min"]),
    (
        "dtype hard-coded",
        "y = nl.ndarray(s, dtype=x.dtype)",
        ["y = nl.ndarray(s, dtype=nl.float32)"],
    ),
    (
        "narrower accumulation",
        "y = nl.zeros(s, nl.float32)",
        ["y = nl.zeros(s, nl.bfloat16)"],
    ),
    ("narrower accumulation", "assert x.dtype == nl.float32", []),
    (
        "buffer hoisted",
        "for i in r:\n        t = nl.ndarray(s)\n        u = nl.ndarray(i)\n        f(t, u)",
        [
            "t = nl.ndarray(s)\n    for i in r:\n        pass\n        u = nl.ndarray(i)"
            "\n        f(t, u)"
        ],
    ),
]


@pytest.fixture
def written(tmp_path):
    """The function of a module with these lines in it, and the lines of each mutant of it."""

    def write(lines):
        file = tmp_path / f"kernel_{len(list(tmp_path.iterdir()))}.py"
        before = "import nki.language as nl\n\n\ndef kernel():\n    "
        after = "\n    return out\n"
        file.write_text(before + lines + after, encoding="utf-8")
        names = {}
        code = compile(f"\n\n\ndef kernel():\n    {lines}{after}", str(file), "exec")
        exec(code, names)
        made = {}
        for mutant in mutants_of([names["kernel"]]):
            text = mutant.text.removeprefix(before).removesuffix(after).rstrip()
            made.setdefault(mutant.operator, []).append(text)
            ast.parse(mutant.text)
        return made

    return write


@every("name, lines, changed", LINES)
def test_a_bug_is_planted(written, name, lines, changed):
    assert sorted(written(lines).get(name, [])) == sorted(changed)


def test_each_bug_has_a_line_here():
    assert {name for name, *_ in BUGS} == {
        name for name, _, changed in LINES if changed
    }


def test_lines_below_a_change_stay_where_they_are(written):
    """Errors of a mutant name the lines of the file."""
    lines = "total = nisa.nc_matmul(\n        a,\n        b,\n    )"
    assert written(f"{lines}\n    f(\n        x,\n    )") == {
        "instruction left out": [f"{lines}\n    pass"],
        "operands swapped": [
            "total = (nisa.nc_matmul(b, a)\n\n\n)\n    f(\n        x,\n    )"
        ],
    }


def test_texts_are_no_code(written):
    """Messages, docstrings and raised errors decide nothing."""
    assert (
        written('"""Of 2 rows."""\n    raise ValueError(f"{n + 1} rows, not {n - 1}")')
        == {}
    )

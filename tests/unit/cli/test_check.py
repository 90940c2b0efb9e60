import json
import re

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from tests.every import every

CLEAN = ("kernels.classic.transpose:matrix_transpose", "--shape", "128,256")

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def total(a):
    out = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((128, 128), dtype=a.dtype, buffer=nl.{buffer})
    for i in nl.affine_range(2):
        {body}
    nl.store(out, {result})
    return out
"""
REDUCTION = {
    "buffer": "sbuf",
    "body": "tile[...] += nl.load(a[:, nl.ds(128 * i, 128)])",
    "result": "tile",
}
CARRIED = REDUCTION | {
    "body": "tile[...] = nl.subtract(nl.load(a[:, nl.ds(128 * i, 128)]), tile)"
}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Write a module; return the arguments that check its kernel."""

    def write(name, parts):
        (tmp_path / f"{name}.py").write_text(KERNEL.format(**parts))
        monkeypatch.syspath_prepend(tmp_path)
        return (f"{name}:total", "--shape", "128,256")

    return write


def run(*arguments):
    return CliRunner().invoke(main, ["check", *arguments])


def test_a_kernel_without_hazards(tmp_path):
    file = tmp_path / "found.json"
    result = run(*CLEAN, "--strict", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text())["findings"] == []
    (line,) = result.stdout.splitlines()
    assert line.endswith(
        " on trn2: instructions: 6, findings: 0, allowed by comments: 0"
    )
    assert run(*CLEAN, "--memory").stdout.startswith("sbuf: ")


def test_a_proven_error_fails_the_command(kernel):
    result = run(*kernel("check_carried", CARRIED))
    assert result.exit_code == 1
    assert (
        "error affine-carried: iteration 1 of the affine_range at line 10 reads"
        in result.stdout
    )
    assert "remedy:   use nl.sequential_range, which keeps the order\n" in result.stdout
    assert "findings: 1, allowed by comments: 0" in result.stdout


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 1)])
def test_a_warning_fails_where_it_counts(kernel, options, code):
    result = run(*kernel("check_reduction", REDUCTION), *options)
    assert result.exit_code == code
    assert "warning affine-reduction" in result.stdout


def test_a_comment_allows_one_place(kernel):
    body = REDUCTION["body"] + "  # difftest: allow[affine-reduction]"
    result = run(*kernel("check_allowed", REDUCTION | {"body": body}), "--strict")
    assert result.exit_code == 0, result.output
    assert "findings: 0, allowed by comments: 1" in result.stdout


def test_json_has_the_findings_even_if_the_pipe_is_closed(
    kernel, tmp_path, monkeypatch
):
    file = tmp_path / "found.json"
    # a pipe, after the first line
    closed = type("", (), {"echo": lambda *_, **__: 1 / 0})
    with monkeypatch.context() as patch:
        patch.setattr("difftest.cli.check.click", closed)
        run(*kernel("check_json", CARRIED), "--json", str(file))
    document = json.loads(file.read_text())
    (found,) = document.pop("findings")
    assert document == {
        "format": 3,
        "kernel": "total",
        "machine": "trn2",
        "grid": [],
        "ranks": 1,
        "inputs": [{"shape": [128, 256], "dtype": "float32"}],
        "results": [
            {
                "shape": [128, 128],
                "dtype": "float32",
                "argument": None,
                "is_returned": True,
                "is_updated": False,
            }
        ],
        "instructions": 6,
        "allowed": 0,
        "misuses": [],
    }
    assert (found["id"], found["severity"]) == ("affine-carried", "error")
    assert [line["line"] for line in found["locations"]] == [11, 10]


RACE = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def total(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(nl.program_id(0)))
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


@every("grid, code", [((), 0), (("--grid", "2"), 1)])
def test_a_race_is_found_on_two_cores_only(tmp_path, monkeypatch, grid, code):
    (tmp_path / "check_race.py").write_text(RACE)
    monkeypatch.syspath_prepend(tmp_path)
    result = run("check_race:total", "--shape", "16,16", *grid)
    assert result.exit_code == code, result.output
    assert ("error program-race" in result.stdout) is bool(code)


EXCHANGE = """
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl


@nki.jit
def twice(x, ranks):
    group = ncc.ReplicaGroup([list(range(ranks))])
    send, receive, again = (
        nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm) for _ in range(3)
    )
    nisa.dma_copy(dst=send, src=x)
    ncc.all_to_all([send], [receive], group, 0)
    ncc.all_to_all([receive], [{target}], group, 0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src={target})
    return out
"""


@every("target, found", [("send", True), ("again", False)])
def test_ranks_are_looked_at(tmp_path, monkeypatch, target, found):
    module = f"check_ranks_{target}"
    (tmp_path / f"{module}.py").write_text(EXCHANGE.replace("{target}", target))
    monkeypatch.syspath_prepend(tmp_path)
    result = run(
        f"{module}:twice", "--shape", "4,8", "--set", "ranks=4", "--ranks", "4"
    )
    assert result.exit_code == 0, result.output
    assert ("warning exchange-buffer-shared: on rank 0, two" in result.stdout) is found


GATHER = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def gather(table, rows):
    out = nl.ndarray((8, 16), dtype=table.dtype, buffer=nl.shared_hbm)
    at = nl.load(rows)
    nl.store(out, nl.load(table[at[nl.arange(8)[:, None], 0], nl.arange(16)[None, :]]))
    return out


@nki.jit
def scatter(table, rows):
    out = nl.ndarray((8, 16), dtype=table.dtype, buffer=nl.shared_hbm)
    at = nl.load(rows)
    line, column = nl.mgrid[0:8, 0:16]
    nl.store(out[at[line, 0], column], nl.load(table[0:8]))
    return out
"""
OPERANDS = (
    "--shape",
    "32,16",
    "--shape",
    "8,1",
    "--dtype",
    "float32",
    "--dtype",
    "int32",
)


@pytest.fixture
def indexing(tmp_path, monkeypatch):
    (tmp_path / "check_indices.py").write_text(GATHER)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda kernel, *more: run(f"check_indices:{kernel}", *OPERANDS, *more)


def test_an_error_in_the_kernels_own_python_is_one_message(kernel):
    name, *_ = kernel("check_shape", REDUCTION | {"result": "tile[a.shape[2]]"})
    result = run(name, "--shape", "128,256")
    assert result.exit_code == 1
    assert (
        "Error: the kernel's own Python crashed: IndexError: tuple index out"
        in result.output
    )
    assert "check_shape.py:12: nl.store(out, tile[a.shape[2]])" in result.output


def test_an_error_of_the_simulators_is_not_the_kernels(kernel, monkeypatch):
    arguments = kernel("check_broken", REDUCTION)
    monkeypatch.setattr("difftest.simulator.recording.kernel_stack", None)
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)


def test_random_integers_as_indices_are_refused_with_the_remedy(indexing):
    result = indexing("gather")
    assert result.exit_code == 1
    assert "the kernel rejects this" in result.output
    assert (
        "rows are random integers around 0; for indices say --bound rows=N"
        in result.output
    )


@pytest.mark.parametrize(("bound", "found"), [(8, False), (7, True)])
def test_bounded_indices_repeat_only_if_they_must(indexing, bound, found):
    result = indexing("scatter", "--bound", f"rows={bound}")
    assert result.exit_code == 0, result.output
    assert ("warning scatter-twice" in result.stdout) is found


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("rows", "a bound is NAME=N, as in rows=64; got 'rows'"),
        ("rows=0", "a bound is NAME=N"),
        ("row=8", "the inputs are table, rows"),
        ("table=8", "table is float32; give it a --dtype of integers"),
        ("rows=5000000000", "int32 does not hold it"),
    ],
)
def test_a_bound_that_is_none(indexing, bound, said):
    result = indexing("gather", "--bound", bound)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


WRITING = """
import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test


@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(src=a, dst=tile)
    {body}


@kernel_test(kernel=kernel, reference=lambda a: a, domain={{"n": (4,)}}, inputs={{"a": "n n"}})
def test_kernel(case):
    case.check()
"""
SAME = "nisa.dma_copy(src=tile, dst=a)"
COPY = "nisa.dma_copy(src=tile, dst=out)"
CASE = json.dumps({"values": {"n": 4}, "dtype": "float32", "data": {"a": "iota"}})


@every(
    "body, of_shape, of_test",
    [
        (f"{COPY}; return out", "", ""),
        (
            f"{SAME}; {COPY}; return out",
            "",
            "not name in outp",
        ),
        (
            f"{SAME}; {COPY}; return out, a",
            "",
            "writes to its input a, which its test does not",
        ),
        (SAME, "", "writes to its input a, which its test does not name in outputs="),
        (
            f"{COPY}; return a",
            *["returns its input a itself, without a write to it"] * 2,
        ),
        (
            COPY,
            *["gives nothing back: it returns no tensor, and writes to no input"] * 2,
        ),
    ],
)
def test_a_write_to_an_input_is_named_with_equal_values_too(
    tmp_path, body, of_shape, of_test
):
    file = tmp_path / f"test_writing_{abs(hash(body))}.py"
    file.write_text(WRITING.format(body=body))
    asked = (
        (f"{file}:kernel", "--shape", "4,4"),
        (f"{file}::test_kernel", "--case", CASE),
    )
    for arguments, said in zip(asked, (of_shape, of_test), strict=True):
        result = run(*arguments)
        assert result.exit_code == bool(said), result.output
        assert said in result.stdout
        assert ("\nerror: the kernel" in f"\n{result.stdout}") == bool(said)


NEW = (None, True, False)


@pytest.mark.parametrize(
    ("body", "results", "shown"),
    [
        (
            f"{SAME}; {COPY}; return out",
            [NEW, ("a", False, True)],
            ["returned: [4, 4] float32", "updated in place: a [4, 4] float32"],
        ),
        (
            f"{SAME}; {COPY}; return out, a",
            [NEW, ("a", True, True)],
            [
                "returned: [4, 4] float32",
                "updated in place and returned: a [4, 4] float32",
            ],
        ),
        (SAME, [("a", False, True)], ["updated in place: a [4, 4] float32"]),
        (f"{COPY}; return out", [NEW], []),
    ],
)
def test_returned_and_updated_arrays_are_both_shown(tmp_path, body, results, shown):
    file = tmp_path / f"test_showing_{abs(hash(body))}.py"
    file.write_text(WRITING.format(body=body))
    document = tmp_path / "check.json"
    result = run(f"{file}:kernel", "--shape", "4,4", "--json", str(document))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.endswith("float32")] == shown
    found = json.loads(document.read_text())["results"]
    assert [
        (one["argument"], one["is_returned"], one["is_updated"]) for one in found
    ] == results


IN_PLACE = """
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test


@nki.jit
def kernel({parameters}):
    new, old = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(src=x, dst=new)
    nisa.dma_copy(src=total, dst=old)
    nisa.tensor_tensor(dst=new, data1=new, data2=old, op=nl.add)
    {body}


@kernel_test(
    kernel=kernel,
    reference=lambda x, total: x.astype(np.float64) + total,
    domain={{"n": (4,), "factor": (1,)}},
    inputs={{"x": "n 2", "total": "n 2"}},
    outputs={{"total": "n 2"}},
    {more}
)
def test_kernel(case):
    case.check()
"""


@every(
    "parameters, body, more",
    [
        ("total, x", "nisa.dma_copy(src=new, dst=total)", ""),
        ("total, x", "nisa.dma_copy(src=new, dst=total); return total", ""),
        ("total, x", "return total", ""),
        (
            "factor, x, total",
            "nisa.dma_copy(src=new, dst=total)",
            "parameters=['factor'],",
        ),
    ],
)
def test_an_argument_that_is_read_and_written_is_no_misuse(
    tmp_path, parameters, body, more
):
    """The test may name its arrays in another order than the kernel."""
    file = tmp_path / f"test_updating_{abs(hash(parameters + body))}.py"
    file.write_text(IN_PLACE.format(parameters=parameters, body=body, more=more))
    result = run(f"{file}::test_kernel", "--case", '{"n": 4, "factor": 1}')
    assert result.exit_code == 0, result.output


ANY_ARRAYS = """
import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test


@nki.jit
def swap(*pair, rounds=1):
    for first, second in (pair, pair[::-1])[:rounds]:
        tile = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=first)
        nisa.dma_copy(dst=second, src=tile)
    return pair


@kernel_test(
    kernel=swap,
    reference=lambda a, b: (a, a),
    domain={"n": (4,)},
    inputs={"a": "n 2", "b": "n 2"},
    outputs={"a": "n 2", "b": "n 2"},
)
def test_swap(case):
    case.check()
"""


def test_arrays_of_any_number_have_the_names_of_the_test(tmp_path):
    file = tmp_path / "test_any_arrays.py"
    file.write_text(ANY_ARRAYS)
    result = run(f"{file}::test_swap")
    assert result.exit_code == 0, result.output
    assert "updated in place and returned: b [4, 2] float32" in result.output
    result = run(f"{file}:swap", "--shape", "4,2", "--shape", "4,2")
    assert result.exit_code == 1
    assert "returns its input pair[0] itself, without a write" in result.output


SMALLEST = """
import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test, sizes


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, x.shape[0], 128):
        last = min(first + 128, x.shape[0])
        nisa.dma_copy(dst=out[first:last], src=x[first:last])
    return out


@kernel_test(kernel=copy, reference=lambda x: x, inputs={"x": "rows columns"})
def test_copy(case):
    case.check()


@kernel_test(
    kernel=copy,
    reference=lambda x: x,
    domain={"rows": sizes(1, 2**20), "columns": sizes(1, 2**20)},
    inputs={"x": "rows columns"},
)
def test_large(case):
    case.check()
"""


def test_a_test_without_a_case_runs_with_the_largest_sizes_of_its_domain(tmp_path):
    file = tmp_path / "test_smallest.py"
    file.write_text(SMALLEST)
    result = run(f"{file}::test_copy")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "domain inferred: rows, columns = sizes(1, 300), float32",
        'case: {"rows": 300, "columns": 300}, the largest sizes of the domain; --case takes others',
    ]
    assert "copy on trn2: instructions: 3, findings: 0" in result.stdout
    shown = re.search("case: (.*}), the", result.stderr)[1]
    again = run(f"{file}::test_copy", "--case", shown)
    assert again.stdout == result.stdout
    assert again.stderr == ""
    large = run(f"{file}::test_large")
    assert large.exit_code == 2
    assert "has no largest case of at most 16,777,216 elements" in large.output

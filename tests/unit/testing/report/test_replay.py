"""Each judge stops a replay at the instruction that was planted, and none a correct kernel."""

import io
import sys

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.simulator.oracle.comparison import MEANINGS
from difftest.testing.report.replay import replay_lines, rerun_saved
from difftest.testing.report.saved import (
    SavedError,
    SavedFailure,
    file_name,
    modules_of,
    read_saved,
)
from tests.every import every

KERNEL = """import nki
import nki.isa as nisa
import nki.language as nl
from parts.sizes import ROWS


@nki.jit
def scaled(x, factor):
    assert x.shape[0] <= 200, "too many rows"
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, x.shape[0], ROWS):
        count = min(ROWS, x.shape[0] - first)
        tile = nl.ndarray((count, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        held = nl.ndarray((count, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + count, :])
        nisa.tensor_scalar(dst=held, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[first : first + count, :], src=held)
    return out
"""
TEST = """from difftest import kernel_test
from parts import sizes as parts_sizes
from scaled import scaled


def reference(x, factor):
    return x.astype("float64") * factor


@kernel_test(
    kernel=scaled,
    reference=reference,
    domain={"n": range(1, 500), "factor": [3.0, 0.3]},
    inputs={"x": "n 2"},
    parameters=["factor"],
    dtypes=["float32"],
)
def test_scaled(case):
    case.check()
"""
CASE = '{"values":{"n":%d,"factor":0.3},"dtype":"float32","data":{"x":{"random":{"seed":1}}}}'
WRONG = "src=x[0:count, :]"
NARROW = "held = nl.ndarray((count, x.shape[1]), dtype=nl.bfloat16"


def saved(old="", new="", rows=130, **more):
    assert old in KERNEL
    modules = {
        "test_scaled": TEST,
        "scaled": KERNEL.replace(old, new) if old else KERNEL,
        "parts.sizes": "ROWS = 128\n",
    }
    return SavedFailure("test_scaled:test_scaled", CASE % rows, modules | more)


def said(one):
    texts = []
    again = rerun_saved(one, lambda made: texts.extend(replay_lines(made)))
    return again, "\n".join(texts)


def test_a_correct_kernel_stops_nowhere():
    again, text = said(saved())
    assert again.stops == ()
    assert text == "the case agrees with its reference here"


def test_the_reference_stops_at_the_last_writer():
    again, text = said(saved("src=x[first : first + count, :]", WRONG))
    assert [one.judge for one in again.stops] == ["the reference"]
    assert again.event.opcode == "dma_copy"
    assert again.event.number == 5
    assert "  >   17         nisa.dma_copy(dst=out[first" in text
    assert "  written by:  .../scaled.py:17: nisa.dma_copy(dst=out[first" in text
    assert "output 0 at [128, 0]: got " in text
    assert "written here last" in text
    assert "after it, src:\n    held, tensor 5 [2, 2] float32 in sbuf" in text


def test_the_exact_run_stops_where_digits_are_lost():
    again, text = said(
        saved("held = nl.ndarray((count, x.shape[1]), dtype=x.dtype", NARROW)
    )
    assert [one.judge for one in again.stops] == ["the exact run", "the reference"]
    assert again.event.opcode == "tensor_scalar"
    assert again.event.number == 1
    assert "held is farther from its exact values than rounding explains" in text
    assert "  >   16 " in text
    assert "the reference disagrees too at instruction 2" in text


def test_the_oracle_stops_where_the_simulator_is_wrong(monkeypatch):
    monkeypatch.setitem(MEANINGS, "tensor_scalar", MEANINGS["reciprocal"])
    again, _ = said(saved())
    assert again.stops[0].judge == "the oracle"
    assert again.stops[0].location.line == 16


HAZARD = """import neuronxcc.nki.language as nl


def scaled(x, factor):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    for i in nl.affine_range(2):
        nl.store(scratch, nl.load(x))
        nl.store(result, nl.multiply(nl.load(scratch), factor))
    return result
"""


def test_a_detector_stops_at_its_evidence():
    again, text = said(saved(rows=2, scaled=HAZARD))
    assert {one.judge for one in again.stops} == {"a detector"}
    assert "agrees with its reference here, and can be wrong on a device" in text
    assert " .../scaled.py:8: " in text  # the folder is gone when one reads it
    assert again.stops[0].text.startswith("affine-rewritten: ")
    assert again.event.location.line == 8


MADE = """3e38)
        nisa.tensor_tensor(dst=held, data1=held, data2=held, op=nl.subtract)
        nisa.tensor_scalar(dst=held, data=held, op0=nl.multiply, operand0=1.0)"""


def test_a_warning_has_the_cause_of_a_wrong_output():
    again, text = said(saved("factor)\n        nisa", MADE + "\n        nisa", rows=9))
    assert [one.judge for one in again.stops] == [
        "the exact run",
        "a detector",
        "the reference",
    ]
    assert (
        "a detector disagrees too at instruction 2: nan-made: tensor_tensor(subtract)"
        in text
    )


@every(
    "old, new, judge, line",
    [
        ("<= 200", "<= 100", "AssertionError is raised here", 9),
        ("src=held)", "src=held[0:1, :])", "ShapeError is raised here", 17),
        ("src=held)", "src=held.nothing)", "MissingNameError is raised here", 17),
    ],
)
def test_a_replay_stops_at_the_line_that_raises(old, new, judge, line):
    again, text = said(saved(old, new))
    (stop,) = again.stops
    assert stop.text == judge
    assert stop.location.line == line
    assert f"  > {line:>4} " in text


def test_the_debugger_stops_before_the_line(monkeypatch, capsys):
    """The first stop is in the wrong iteration of the loop, and the run continues from there."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("p first, held.shape\nc\n"))
    one = saved("src=x[first : first + count, :]", WRONG)
    rerun_saved(one, lambda made: print(*replay_lines(made), sep="\n"), debug=True)
    report, *session = capsys.readouterr().out.split("(Pdb)")
    assert report.rstrip().endswith(
        "-> nisa.dma_copy(dst=out[first : first + count, :], src=held)"
    )
    assert report.count("disagrees first") == 1
    assert [text.strip() for text in session] == ["(128, (2, 2))", ""]


def test_the_exit_code_of_the_command_is_the_result(tmp_path):
    file = tmp_path / "failure.py"
    for one, code, text in (
        (saved("src=x[first : first + count, :]", WRONG), 1, "written here last"),
        (saved(), 0, "the case agrees with its reference here"),
    ):
        file.write_text(one.script("it failed"))
        result = CliRunner().invoke(main, ["replay", str(file)])
        assert result.exit_code == code
        assert text in result.output


# -- the file ------------------------------------------------------------------------------------


def test_a_file_is_read_back(tmp_path):
    awkward = "text = '''quoted'''\nback = 'a\\\\b'\n"
    one = saved(**{"parts.more": awkward, "parts.empty": "'x'"})
    file = tmp_path / "failure.py"
    file.write_text(one.script('is "wrong" \\ here'))
    assert read_saved(file) == one
    assert (
        "nisa.dma_copy(dst=tile, src=x[first : first + count, :])\n" in file.read_text()
    )


@every(
    "text, why",
    [
        ("", "it has no TEST"),
        ("TEST = 1", "it has no CASE"),
        ("not python", "it has no TEST"),
        ("TEST = call()\nCASE = 2", "malformed node"),
        ("x = {", r"'{' was never closed \(other.py"),
    ],
)
def test_another_file_is_refused(tmp_path, text, why):
    file = tmp_path / "other.py"
    file.write_text(text)
    with pytest.raises(
        SavedError, match=f"was not written by pytest --difftest-save: {why}"
    ):
        read_saved(file)
    result = CliRunner().invoke(main, ["replay", str(file)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


def test_a_module_that_is_not_there_is_named():
    one = saved("from parts.sizes import ROWS", "from elsewhere import ROWS")
    with pytest.raises(
        SavedError, match=r"cannot be imported here, ModuleNotFoundError: .*else"
    ):
        said(one)
    with pytest.raises(SavedError, match="test_scaled has no kernel test reference"):
        said(SavedFailure("test_scaled:reference", CASE % 1, saved().modules))


def test_earlier_imports_are_restored():
    before = dict(sys.modules), list(sys.path)
    sys.modules["scaled"] = marker = type(sys)("scaled")
    try:
        said(saved())
        assert sys.modules["scaled"] is marker
    finally:
        del sys.modules["scaled"]
    assert list(sys.path) == before[1]
    assert "test_scaled" not in sys.modules


def test_the_modules_of_a_test_are_its_own_and_their_imports(monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "one.py").write_text(
        "import numpy\nfrom . import two\nimport click\n"
    )
    (tmp_path / "mine" / "two.py").write_text(
        "def f():\n    from mine.three import g\n"
    )
    (tmp_path / "mine" / "three.py").write_text("g = 1\n")
    (tmp_path / "mine" / "four.py").write_text("g = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import mine.four  # noqa: F401
    import mine.one
    import mine.three  # noqa: F401

    assert sorted(modules_of(mine.one)) == ["mine.one", "mine.three", "mine.two"]
    for name in [name for name in sys.modules if name.startswith("mine")]:
        del sys.modules[name]


def test_the_files_name_is_none_that_pytest_collects():
    assert (
        file_name("a/test_x.py::test_y[n=2-float32]")
        == "failure_a_test_x_py_test_y_n_2_float32.py"
    )


UPDATING = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def add_to(total, x):
    new = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    old = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=new, src=x)
    nisa.dma_copy(dst=old, src=total)
    nisa.tensor_tensor(dst=new, data1=new, data2=old, op=nl.add)
    nisa.dma_copy(dst=total, src=new)
    return total
"""
OF_UPDATING = """from difftest import kernel_test
from add_to import add_to


@kernel_test(
    kernel=add_to,
    reference=lambda total, x: total.astype("float64") + x,
    domain={"n": range(1, 9)},
    inputs={"total": "n 2", "x": "n 2"},
    outputs={"total": "n 2"},
)
def test_add_to(case):
    case.check()
"""


@every("wrong", [False, True])
def test_an_argument_that_is_updated_has_its_data_in_each_run_of_a_replay(wrong):
    text = UPDATING.replace("data2=old", "data2=new") if wrong else UPDATING
    data = '{"total":{"random":{"seed":1}},"x":{"random":{"seed":2}}}'
    case = f'{{"values":{{"n":3}},"dtype":"float32","data":{data}}}'
    modules = {"test_add_to": OF_UPDATING, "add_to": text}
    again, text = said(SavedFailure("test_add_to:test_add_to", case, modules))
    if not wrong:
        assert text == "the case agrees with its reference here"
        return
    (stop,) = again.stops
    assert stop.text.startswith("total at [0, 0]: got ")
    assert again.event.location.text.startswith("nisa.dma_copy(dst=total")

import inspect
import textwrap

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.simulator.frontend import nki as today
from difftest.simulator.frontend.levels import GONE
from difftest.tools.migration import calls, rules
from difftest.tools.migration.functions import OF_RESULT
from difftest.tools.migration.rewriting import migrate_source
from tests.every import every

HEAD = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
"""
TODAY = """\
import nki
import nki.isa as nisa
import nki.language as nl
"""


def body(text):
    return textwrap.indent(textwrap.dedent(text).strip(), "    ")


def rewritten(text):
    """Return the migrated body of a function, and the rules that it still breaks."""
    result = migrate_source(f"{HEAD}\n\ndef f(a, b):\n{body(text)}\n")
    assert result.text.startswith(f"{TODAY}\n\ndef f(a, b):\n")
    return result.text.partition("def f(a, b):\n")[2].rstrip("\n"), list(result.left)


MECHANICAL = {
    "load": (
        "t = nl.load(a[0:128])",
        """
        t = nl.ndarray(a[0:128].shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=a[0:128])
        """,
    ),
    "store, comments kept": (
        """
        # the result
        nl.store(a, value=b)  # at once
        """,
        """
        # the result
        nisa.dma_copy(dst=a, src=b)  # at once
        """,
    ),
    "positional arguments get names, and engines stay": (
        "t = nisa.tensor_tensor(a, b, nl.add, dtype=nl.float32, engine=nisa.vector_engine)",
        """
        t = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=t, data1=a, data2=b, op=nl.add, engine=nisa.vector_engine)
        """,
    ),
    "a tile that is read while its name is bound anew": (
        "a = nisa.reciprocal(a)",
        """
        new_a = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.reciprocal(dst=new_a, data=a)
        a = new_a
        """,
    ),
    "a place in a tile": (
        "a[:, 0:8] = nisa.tensor_copy(b, dtype=a.dtype)",
        "nisa.tensor_copy(dst=a[:, 0:8], src=b)",
    ),
    "a sum in PSUM": (
        """
        total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            total += nisa.nc_matmul(a[k], b[k])
        """,
        """
        total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
        for k in range(4):
            nisa.nc_matmul(dst=total, stationary=a[k], moving=b[k])
        """,
    ),
    "a result in a result": (
        "return nisa.tensor_copy(nisa.nc_transpose(a))",
        """
        nc_transpose_result = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=nc_transpose_result, data=a)
        tensor_copy_result = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tensor_copy_result, src=nc_transpose_result)
        return tensor_copy_result
        """,
    ),
    "statements behind a semicolon": (
        """
        # both
        t = nl.load(a); n = 1  # at once
        """,
        """
        # both
        t = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=a)
        n = 1  # at once
        """,
    ),
    "a statement behind a colon": (
        "for i in nl.affine_range(2): nl.store(a[i], b[i])",
        """
        for i in range(2):
            nisa.dma_copy(dst=a[i], src=b[i])
        """,
    ),
    "what is no NKI": ("n = max(len(a), 2) + 1", "n = max(len(a), 2) + 1"),
}


@every("name", MECHANICAL)
def test_mechanical_rewrites_leave_no_comment(name):
    before, after = MECHANICAL[name]
    assert rewritten(before) == (body(after), [])


LEFT = {
    "t = nl.load(a, mask=m)": rules.MASK,
    "nl.store(a, b, mask=m)": rules.MASK,
    "nisa.dma_copy(dst=a, src=b, mask=m)": rules.MASK,
    "t = nisa.tensor_reduce(nl.max, a, axis=b)": rules.SHAPE,
    "a[0] = nisa.tensor_copy(b)": rules.TARGET,
    "total += nisa.nc_matmul(a, b)": rules.SUM,
    "x = y = nl.load(a)": rules.SEVERAL,
    "x = nl.load(a) if b else None": rules.INSIDE,
    "x = [nl.load(one) for one in a]": rules.INSIDE,
    "t = nisa.range_select(on_true_tile=a)": rules.UNKNOWN_CALL,
    "i = nl.program_id(0)": GONE["nl.program_id"],
    "t = b[..., None]": rules.NEW_AXIS,
    "from neuronxcc.nki import language, missing": rules.IMPORT,
    "from helpers import load": rules.OTHERS,
}


@every("line", LEFT)
def test_code_that_is_left_stays_under_a_comment(line):
    rule, remedy = LEFT[line]
    comment = f"# difftest migrate: {rule}; {remedy}"
    assert rewritten(line) == (body(f"{comment}\n{line}"), [(rule, remedy)])


@every("name", ["nl.static_cast", "nisa.tensor_copy_dynamic_src"])
def test_names_that_today_lacks_are_left(name):
    text, left = rewritten(f"f = {name}")
    assert left == [(f"the current dialect does not have {name}", "see `difftest api`")]
    assert text.endswith(f"\n    f = {name}")


@every("name", calls.INSTRUCTIONS)
def test_the_positional_parameters_are_todays_too(name):
    module, function = (calls.INSTRUCTIONS[name].name or name).split(".")
    new = inspect.signature(
        getattr({"nl": today.language, "nisa": today.isa}[module], function)
    )
    assert {"dst", *calls.positional(name)} - set(OF_RESULT) <= set(new.parameters)


@every("line", ["c = t ** 2", "c = ~t", "c = t % 2", "t -= b"])
def test_operators_on_tiles_that_are_left(line):
    text, [left] = rewritten(f"t = nl.load(a)\n{line}")
    assert left in (rules.OPERATOR, rules.TILE_OR_NUMBER)
    assert text.endswith(f"\n    {line}")


@every(
    "text",
    [
        "if nl.load(a):\n    pass",
        "if a:\n    pass\nelse:\n    x = [nl.load(b) for b in a]",
        "try:\n    pass\nexcept ValueError:\n    x = [nl.load(b) for b in a]",
        "try:\n    pass\nfinally:\n    x = [nl.load(b) for b in a]",
        "while nl.load(a):\n    pass",
        "match a:\n    case 1:\n        x = nl.load(a)",
    ],
)
def test_each_form_of_the_grammar_is_reported_exactly_once(text):
    assert rewritten(text)[1] == [rules.INSIDE]


def test_decorators_and_annotations_go():
    text = (
        f"{HEAD}import neuronxcc.nki.typing as nt\n\n\n"
        "@nki.compiler.skip_middle_end_transformations\n"
        '@nki.jit(mode="simulation")\n'
        "def f(a: nt.tensor, b: nt.mutable_tensor, n: int = 2):\n    return b\n"
    )
    result = migrate_source(text)
    assert (
        result.text == f"{TODAY}\n\n@nki.jit\ndef f(a, b, n: int = 2):\n    return b\n"
    )
    assert result.left == ()


@every(
    "annotation",
    [
        "nt.tensor[nt.mutable]",
        "nt.tensor[128, 512]",
        "nt.mutable_tensor | None",
        "Optional[nt.tensor[nt.mutable]]",
        "'nt.tensor[nt.mutable]'",
        "Optional['nt.tensor']",
    ],
)
def test_each_annotation_with_a_type_of_nki_is_removed(annotation):
    text = (
        f"{HEAD}import neuronxcc.nki.typing as nt\n\n\n"
        f"@nki.jit\ndef f(a: {annotation}, n: 'int' = 2):\n    return a\n"
    )
    result = migrate_source(text)
    assert (
        result.text == f"{TODAY}\n\n@nki.jit\ndef f(a, n: 'int' = 2):\n    return a\n"
    )
    assert result.left == ()


def test_other_names_for_the_modules_are_followed():
    result = migrate_source(
        "from neuronxcc import nki\nimport neuronxcc.nki.language as L\n\n\n"
        "def f(a, b):\n    L.store(a, L.load(b))\n"
    )
    assert result.left == ()
    assert result.text == (
        "import nki\nimport nki.isa as nisa\nimport nki.language as L\n\n\n"
        "def f(a, b):\n"
        "    load_result = L.ndarray(b.shape, dtype=b.dtype, buffer=L.sbuf)\n"
        "    nisa.dma_copy(dst=load_result, src=b)\n"
        "    nisa.dma_copy(dst=a, src=load_result)\n"
    )


KERNEL = """

@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    {}
    nl.store(out, twice)
    return out
"""


@pytest.fixture
def command(tmp_path):
    """Migrate a kernel file with one statement of choice."""

    def run(statement, *options):
        (tmp_path / "old.py").write_text(HEAD + KERNEL.format(statement))
        return CliRunner().invoke(main, ["migrate", str(tmp_path / "old.py"), *options])

    return run


WHOLE = "twice = nisa.tensor_tensor(tile, tile, nl.add)"
PROOF = ("--kernel", "double", "--shape", "128,64", "--cases", "3")


def test_the_command_writes_and_proves(command, tmp_path):
    result = command(WHOLE, *PROOF, "-o", str(tmp_path / "new.py"))
    assert result.exit_code == 0, result.output
    assert (
        "double is proven: 6 cases agree bit for bit; float32, bfloat16; shapes [128, 64]"
        in result.output
    )
    assert "import nki\n" in (tmp_path / "new.py").read_text()


def test_the_command_names_the_unproven_kernels(command):
    result = command(WHOLE)
    assert result.exit_code == 0
    assert "not proven: name a --kernel and the --shape of its inputs" in result.output


def test_the_command_says_that_there_is_nothing_to_rewrite(tmp_path):
    (file := tmp_path / "today.py").write_text("import nki\n")
    result = CliRunner().invoke(main, ["migrate", str(file)])
    assert result.stderr.startswith(
        f"{file} has nothing of neuronxcc.nki: it stays as it is\n"
    )


def test_the_command_counts_the_remaining_code(command):
    result = command("twice = tile ** 2", *PROOF)
    assert result.exit_code == 1
    assert "old.py: 1 left to do" in result.output
    assert "double is not proven: the new kernel fails" in result.output
    assert "where:    old.py:" in result.output  # no folder that is gone


def test_the_command_rejects_impossible_options(command, tmp_path):
    old = str(tmp_path / "old.py")
    assert "would replace" in command(WHOLE, "-o", old).output
    assert "a proof needs" in command(WHOLE, "--kernel", "double").output
    assert f"{old} is not Python" in command("twice = (").output
    (tmp_path / "imports.py").write_text("from .old import twice")
    whole = ["migrate", str(tmp_path), "-o", str(tmp_path / "new")]
    assert f"{old} is not Python" in CliRunner().invoke(main, whole).output
    assert "has no function none" in command(WHOLE, *PROOF, "--kernel", "none").output
    assert "neuronxcc" in (tmp_path / "old.py").read_text()

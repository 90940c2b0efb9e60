"""The embedded simulator of a process, and the extension of IPython."""

import re
import sys
from html.parser import HTMLParser

import hypothesis
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import difftest
from difftest.simulator.entry.install import ROOTS, embedded, is_embedded
from difftest.simulator.errors import relative_path
from tests.unit.testing.backends.sdk_standin import write_newer

EMPTY = {"area", "base", "br", "hr", "img", "input", "link", "meta"}


class Elements(HTMLParser):
    """The elements of a piece of HTML, which are all closed, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.open = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def bare(monkeypatch):
    """A process without ``nki`` and ``neuronxcc``; the modules of this session return."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ROOTS:
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def uninstalled(bare):
    """Nothing that a test installs stays."""
    yield
    for name in list(sys.modules):
        if name.partition(".")[0] in ROOTS:
            del sys.modules[name]


@pytest.fixture
def shell(uninstalled, tmp_path, monkeypatch):
    """The shell of IPython in this process, with the extension; it displays text, as a terminal."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance()
    shell.display_formatter.active_types = ["text/plain"]
    shell.run_line_magic("load_ext", "difftest")
    yield shell
    shell.run_line_magic("unload_ext", "difftest")
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def printed(shell, capsys, code):
    capsys.readouterr()
    shell.run_cell(code, store_history=True)
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)


IMPORTS = """
import numpy as np
import nki, nki.isa as nisa, nki.language as nl
import difftest
"""
KERNEL = """
@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, x.shape[0], 4):
        last = min(first + 4, x.shape[0])
        nisa.dma_copy(dst=out[first:last], src=x[{first}:{last}])
    return out

@difftest.kernel_test(
    kernel=copy, reference=lambda x: x, domain={{"n": range(1, 9)}}, inputs={{"x": "n"}}
)
def test_copy(case):
    case.check()
"""
RIGHT = KERNEL.format(first="first", last="last")
WRONG = KERNEL.format(first="0", last="last - first")


def test_the_modules_are_installed_once(uninstalled):
    assert difftest.embedded() is True
    before = sys.modules["nki"]
    assert difftest.embedded() is True
    assert sys.modules["nki"] is before
    assert is_embedded(sys.modules["neuronxcc"])


def test_an_sdk_is_left_alone(uninstalled, tmp_path, monkeypatch):
    write_newer(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert difftest.embedded() is False
    import nki

    assert not is_embedded(nki)
    assert nki.__file__.startswith(str(tmp_path))


def test_the_extension_says_that_an_sdk_runs_the_kernels(
    shell, tmp_path, monkeypatch, capsys
):
    shell.run_line_magic("unload_ext", "difftest")
    write_newer(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shell.run_line_magic("load_ext", "difftest")
    assert "the Neuron SDK is installed" in capsys.readouterr().out
    assert not is_embedded(sys.modules["nki"])


def test_the_extension_leaves_nothing(uninstalled, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell()
    profile = hypothesis.settings.default
    shell.run_line_magic("load_ext", "difftest")
    assert is_embedded(sys.modules["nki"])
    assert hypothesis.settings.default.max_examples == 20
    assert hypothesis.settings.default.deadline is None
    shell.run_line_magic("unload_ext", "difftest")
    assert not any(name in sys.modules for name in ROOTS)
    assert hypothesis.settings.default == profile
    assert shell.custom_exceptions == ()
    for event in ("pre_run_cell", "post_run_cell"):
        called = shell.events.callbacks[event]
        assert [each for each in called if "difftest" in each.__module__] == []
    file = shell.compile.cache("1", 7)
    assert relative_path(file) == file
    shell.history_manager.end_session()


def test_an_error_of_a_kernel_is_its_report(shell, capsys):
    printed(shell, capsys, IMPORTS)
    said = printed(
        shell,
        capsys,
        "@nki.jit\ndef f(x):\n    nl.ndarray((256, 4), x.dtype, nl.sbuf)\n\n"
        "f(np.zeros(4, np.float32))",
    )
    head, *rows = said.strip().splitlines()
    assert head == "LimitError: nl.ndarray was to make a tile of 256 partitions"
    assert [row.split(":")[0].strip() for row in rows] == [
        "rule",
        "received",
        "limit",
        "where",
        "remedy",
    ]
    assert "where:    In[2]:3: nl.ndarray((256, 4), x.dtype, nl.sbuf)" in said
    assert "Traceback" in printed(shell, capsys, "%tb"), "%tb shows the whole of it"


RACING = """
@nki.jit
def racing(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out
"""


def test_hazards_of_launches_are_printed_once_after_their_cell(shell, capsys):
    """Each of two cores writes all of the output."""
    printed(shell, capsys, f"{IMPORTS}{RACING}")
    call = "racing[2](np.ones((4, 8), np.float32))"
    capsys.readouterr()
    shell.run_cell(call)
    said = capsys.readouterr().err
    assert said.startswith("warning program-id-ignored: program 1 writes element")
    assert re.search(r"where:    In\[1\]:\d+: nisa\.dma_copy\(dst=out, src=x\)", said)
    shell.run_cell(call)
    shell.run_cell("racing(np.ones((4, 8), np.float32))")
    assert capsys.readouterr().err == ""


def test_other_errors_show_the_frames_of_the_author_alone(shell, capsys):
    printed(shell, capsys, IMPORTS)
    code = "@nki.jit\ndef f(x):\n    return absent\n\nf(np.zeros(4, np.float32))"
    said = printed(shell, capsys, code)
    assert "NameError: name 'absent' is not defined" in said
    assert "difftest" not in said
    assert said.count("In[2]") == 2
    assert "division by zero" in printed(shell, capsys, "1 / 0")


def test_a_test_called_in_a_cell_runs(shell, capsys):
    said = printed(shell, capsys, f"{IMPORTS}{RIGHT}\ntest_copy()")
    # 20 cases are drawn; one that is drawn again does not run again
    assert re.search(r"copy on embedded: (1\d|20) cases, ", said)
    said = printed(shell, capsys, "difftest.check(test_copy, {'n': 3})")
    assert "Match(elements=3" in said
    said = printed(shell, capsys, "difftest.check(test_copy, {'m': 3})")
    assert said.startswith('CaseError: received {"m": 3}; accepted: ')
    assert "Traceback" not in said


def test_a_failure_in_a_cell_is_shrunk_and_has_no_frames(shell, capsys):
    said = printed(shell, capsys, f"{IMPORTS}{WRONG}\ntest_copy()")
    assert "DifferentialFailure: copy disagrees with its reference\n" in said
    assert "case:        n=5, float32\n" in said
    assert "Traceback" not in said
    assert "@reproduce_failure" not in said


def test_a_notebook_displays_a_failure_as_html(shell, capsys):
    from IPython.utils.capture import capture_output

    shell.display_formatter.active_types = ["text/plain", "text/html"]
    with capture_output() as captured:
        shell.run_cell(f"{IMPORTS}{WRONG}\ntest_copy()", store_history=True)
    (report,) = captured.outputs
    assert captured.stdout.strip().startswith("DifferentialFailure: copy: wrong ")
    assert "case:        n=5, float32" in report.data["text/plain"]
    elements = Elements(report.data["text/html"])
    assert "n=5, float32" in elements.text
    assert elements.tags.count("img") == 1


def test_the_texts_of_a_failure_are_escaped():
    with embedded():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def shifted(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=x)
            return out

        spec = difftest.KernelSpec(
            kernel=shifted,
            reference=lambda x: x + 1,
            domain={"n": [2], "<script>alert(1)</script>": ["a & b"]},
            inputs={"x": "n"},
            title="<b>bold</b>",
        )
        values = {"n": 2, "<script>alert(1)</script>": "a & b"}
        with pytest.raises(difftest.DifferentialFailure) as caught:
            difftest.check(spec, values)
    elements = Elements(caught.value._repr_html_())
    assert "script" not in elements.tags
    assert elements.tags.count("b") == 1 + len(
        [row for row in caught.value._all_rows() if row[1]]
    )
    assert "<script>alert(1)</script>=a & b" in elements.text
    assert "<b>bold</b> disagrees" in elements.text


def test_a_profile_is_text_and_html():
    with embedded():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def copied(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=x)
            return out

        profile = difftest.profile(copied, [np.ones((128, 8), np.float32)])
    prediction = profile.report.prediction
    assert str(profile).startswith(
        f"nc_latency {prediction.latency:,.1f} us predicted for trn2"
    )
    assert "\x1b" not in str(profile)
    elements = Elements(profile._repr_html_())
    assert elements.tags.count("table") == 3
    assert f"nc_latency {prediction.latency:,.1f} us predicted" in elements.text
    assert "dma_copy (dma)" in elements.text
    with pytest.raises(ValueError, match="not a valid Toolchain"):
        difftest.profile(copied, [np.ones((128, 8), np.float32)], toolchain="none")

"""Files that import a missing dialect: the modules that they get, and the restoration."""

import importlib
import sys

import pytest

from difftest.testing.backends.absent import AbsentKernel, absent_in, importable
from difftest.testing.backends.base import DialectError
from difftest.testing.backends.sdk import detect_sdk, dialect_of, function_of
from tests.unit.testing.backends.opaque_sdk import WRITERS
from tests.unit.testing.backends.sdk_standin import write_classic, write_newer

DECORATED = {
    "classic": (
        "nki.jit",
        "nki.jit(mode='auto')",
        "nki.benchmark",
        "nki.benchmark(warmup=1)",
    ),
    "newer": ("nki.jit", "nki.jit()"),
}
PACKAGES = {"classic": "neuronxcc.nki", "newer": "nki"}
OTHER = {"classic": "newer", "newer": "classic"}
KERNEL = """
import {package} as nki
import {package}.isa as nisa
import {package}.language as nl

@{decorator}
def copy(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    return out
"""


@pytest.fixture
def author(site, monkeypatch):
    """Imports a file of these lines."""

    def load(text, name="authors_kernel"):
        (site / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


def nki_modules():
    return {name for name in sys.modules if name.split(".")[0] in ("neuronxcc", "nki")}


@pytest.mark.parametrize("missing", PACKAGES)
def test_its_kernels_are_named_and_do_not_run(site, author, missing):
    for write in WRITERS[OTHER[missing]]:
        write(site)
    absent = absent_in(detect_sdk())
    assert absent.dialect == missing
    before = nki_modules()
    with pytest.raises(ImportError):
        importlib.import_module(PACKAGES[missing])
    for decorator in DECORATED[missing]:
        with importable(absent):
            kernel = author(
                KERNEL.format(package=PACKAGES[missing], decorator=decorator)
            ).copy
        assert isinstance(kernel, AbsentKernel)
        assert (kernel.__name__, function_of(kernel).__name__) == ("copy", "copy")
        assert dialect_of(kernel) == missing
        for call in (kernel, kernel[2]):
            with pytest.raises(
                DialectError, match=f"a kernel of {PACKAGES[missing]} was called"
            ):
                call(1)
    assert nki_modules() == before
    with pytest.raises(ImportError):
        importlib.import_module(PACKAGES[missing])


@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("classic", "nki.simulate_kernel(copy, 1)"),
        ("newer", "nki.simulate(copy)(1)"),
        (
            "newer",
            "from nki.simulator import simulate_kernel; simulate_kernel(copy, [1])",
        ),
    ],
)
def test_no_function_runs_one(site, author, dialect, line):
    for write in WRITERS[OTHER[dialect]]:
        write(site)
    source = KERNEL.format(package=PACKAGES[dialect], decorator="nki.jit")
    with (
        importable(absent_in(detect_sdk())),
        pytest.raises(DialectError, match="was called"),
    ):
        author(f"{source}\n{line}\n")


@pytest.mark.parametrize(
    "form", ["from neuronxcc import nki", "import neuronxcc.nki\nnki = neuronxcc.nki"]
)
def test_each_form_of_import_finds_it_with_the_compilers_package(site, author, form):
    """Today's SDK has a package neuronxcc, without nki in it."""
    for write in WRITERS["newer"]:
        write(site)
    with importable(absent_in(detect_sdk())):
        assert author(f"{form}\nkernel = nki.jit(lambda a: a)").kernel[1]
        compiler = sys.modules["neuronxcc"]
    assert str(site) in compiler.__file__, "the compiler's own package stays"
    assert not hasattr(compiler, "nki")


def test_an_sdk_of_both_or_none_lacks_none(site):
    assert absent_in(detect_sdk()) is None
    write_classic(site)
    write_newer(site)
    importlib.invalidate_caches()
    assert absent_in(detect_sdk()) is None


@pytest.mark.parametrize("situation", WRITERS)
def test_a_kernel_that_shows_no_function_has_the_dialect_of_its_class(
    site, author, situation
):
    """Without it both would go to the first dialect, whose simulator cannot run them."""
    for write in WRITERS[situation]:
        write(site)
    for dialect in PACKAGES if situation == "both" else (situation,):
        package = PACKAGES[dialect]
        kernel = author(
            KERNEL.format(package=package, decorator="nki.jit"), f"of_{dialect}"
        ).copy
        assert function_of(kernel) is None
        assert dialect_of(kernel) == dialect

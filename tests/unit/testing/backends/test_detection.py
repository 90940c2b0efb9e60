import pytest

from difftest.simulator.entry.install import embedded
from difftest.testing.backends.sdk import detect_sdk
from tests.unit.testing.backends.sdk_standin import (
    SDK,
    STUB_TEXT,
    write_classic,
    write_metadata,
    write_newer,
    write_package,
)


def test_without_an_sdk_no_module_is_found(site):
    assert detect_sdk().classic.module is None
    assert detect_sdk().classic.state == "no package neuronxcc"


def test_the_empty_stub_is_named_as_a_stub(site):
    """The distribution neuronx-cc of PyPI holds a folder `neuronx-cc` that cannot be imported."""
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    write_metadata(site, "nki", "0.0.1", STUB_TEXT)
    sdk = detect_sdk()
    stub = "from PyPI, an empty stub that is not the SDK"
    assert sdk.classic.module is sdk.newer.module is None
    assert sdk.classic.state == f"neuronx-cc 1.0.post1 {stub}"
    assert sdk.newer.state == f"nki 0.0.1 {stub}"


def test_a_package_that_fails_to_import_is_not_the_sdk(site):
    write_package(site, "neuronxcc", None, f"raise ImportError({STUB_TEXT!r})")
    classic = detect_sdk().classic
    assert classic.module is None
    assert classic.state.startswith(
        "the package neuronxcc, which fails to import: WRONG PACKAGE"
    )


@pytest.mark.parametrize("text", ["", f"raise ImportError({STUB_TEXT!r})"])
def test_a_stub_of_the_newer_package_is_not_the_sdk(site, text):
    (site / "nki.py").write_text(text)
    assert detect_sdk().newer.module is None


def test_a_package_without_nki_is_not_the_sdk(site):
    write_package(site, "neuronxcc", None)
    assert "No module named 'neuronxcc.nki'" in detect_sdk().classic.state


def test_the_embedded_modules_are_not_the_sdk(site):
    with embedded():
        sdk = detect_sdk()
    assert sdk.classic.module is sdk.newer.module is None
    assert (
        sdk.classic.state
        == "the embedded modules are installed as neuronxcc in this process"
    )
    assert (
        sdk.newer.state == "the embedded modules are installed as nki in this process"
    )


def test_an_sdk_is_found_with_its_version(site):
    write_package(site, "neuronxcc", SDK)
    write_metadata(site, "neuronx-cc", "2.21.18209.0", "The Neuron compiler.")
    classic = detect_sdk().classic
    assert classic.module is not None
    assert (classic.state, classic.version) == (
        "neuronxcc 2.21.18209.0",
        "2.21.18209.0",
    )


@pytest.mark.parametrize(
    ("compiler", "release"),
    [
        ("2.20.9961.0", 25),
        ("2.21.18209.0", 26),
        ("2.24.5133.0", 29),
        ("2.27.5334.0", 32),
    ],
)
def test_the_compilers_version_tells_the_release(site, compiler, release):
    """Release notes of the compiler: 2.21 came with SDK 2.26, and so on."""
    write_classic(site, compiler)
    assert detect_sdk().release == release


@pytest.mark.parametrize(
    ("nki", "release"),
    [("0.3.0", 29), ("0.4.0+g12ab", 30), ("0.6.0", 32), ("0.9.0", None)],
)
def test_the_version_of_nki_tells_the_release(site, nki, release):
    write_newer(site, nki)
    assert detect_sdk().release == release


@pytest.mark.parametrize(
    ("compiler", "refused"),
    [("2.24.5133.0", False), ("2.25.1.0", True), ("2.27.5334.0", True)],
)
def test_baremetal_is_refused_from_sdk_2_30_on(site, compiler, refused):
    write_classic(site, compiler)
    assert bool(detect_sdk().refuses_classic()) is refused

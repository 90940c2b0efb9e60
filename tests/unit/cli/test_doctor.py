import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from tests.unit.testing.backends.conftest import chip, nodes, site
from tests.unit.testing.backends.sdk_standin import (
    STUB_TEXT,
    write_classic,
    write_metadata,
    write_newer,
)

__all__ = ["chip", "nodes", "site"]


def doctor():
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        result.exception
    )
    return result.exit_code, result.output


def line(output, subject):
    """Return the mark and the reason of a check."""
    (found,) = [one for one in output.splitlines() if one[4:].startswith(f"{subject} ")]
    return found[:2].strip(), found[4:].removeprefix(subject).strip()


def test_without_anything_each_line_has_its_reason_and_what_to_do(site, nodes):
    code, output = doctor()
    assert code == 1
    assert line(output, "classic SDK") == ("--", "no package neuronxcc")
    assert line(output, "newer SDK") == ("--", "no package nki")
    expected = (
        "a ModuleNotFoundError in `python script.py` is expected without the SDK."
    )
    assert line(output, "import nki") == ("", expected)
    assert "  remedy: pytest --simulate, difftest run script.py, " in output
    assert line(output, "--simulate=embedded")[0] == "ok"
    assert line(output, "--simulate=sdk")[0] == "--"
    assert line(output, "--device") == ("--", "a Neuron device cannot be used here.")
    assert f"found:  no Neuron device: {nodes} shows no neuron0" in output
    assert "install neuronx-cc from AWS's own package index" in output
    assert "has ever run on one" in line(output, "measurements")[1]
    assert "://" not in output, (
        "AWS's page says which index it is: a wrong one gives the stubs"
    )


def test_a_stub_is_named(site, nodes):
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    assert "an empty stub that is not the SDK" in line(doctor()[1], "classic SDK")[1]


@pytest.mark.parametrize(
    ("write", "subject", "version", "way"),
    [
        (
            write_classic,
            "classic SDK",
            "neuronxcc 2.21.18209.0",
            "through nki.baremetal",
        ),
        (write_newer, "newer SDK", "nki 0.3.0", "through nki.jit with NumPy arrays"),
    ],
)
def test_the_report_states_that_a_device_works(
    site, chip, write, subject, version, way
):
    write(site)
    code, output = doctor()
    assert code == 0
    assert line(output, subject) == ("ok", version)
    assert line(output, "--simulate=sdk")[0] == "ok"
    assert line(output, "--device")[0] == "ok"
    assert way in line(output, "--device")[1]
    is_newer = write is write_newer
    assert ("finds the SDK" in line(output, "import nki")[1]) == is_newer


def test_the_report_states_what_a_generation_lacks(site, chip):
    write_classic(site, "2.27.5334.0")
    code, output = doctor()
    assert code == 1
    assert "with 2.32 its outputs are zeros" in output


def test_a_wrong_setting_is_named(site, nodes, monkeypatch):
    monkeypatch.setenv("DIFFTEST_DEVICE_TIMEOUT", "soon")
    code, output = doctor()
    assert code == 1
    assert line(output, "--device")[1].startswith(
        "DIFFTEST_DEVICE_TIMEOUT: received 'soon'"
    )

import pytest
from click.testing import CliRunner

from difftest.backends.device import diagnosis
from difftest.cli.main import main
from tests.unit.backends.conftest import chip, nodes, site
from tests.unit.backends.nrtpy_standin import write_nrtpy
from tests.unit.backends.sdk_standin import STUB_TEXT, write_classic, write_metadata, write_newer

__all__ = ["chip", "nodes", "site"]


@pytest.fixture
def bare(site, nodes, monkeypatch, tmp_path_factory):
    """A computer on which nothing of AWS's is installed."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("bin")))
    monkeypatch.setattr(diagnosis, "RUNTIME", nodes / "libnrt.so.1")
    for name in (*diagnosis.VARIABLES, "NKI_ARTIFACTS_DIR"):
        if name != "DIFFTEST_LOCK_DIR":
            monkeypatch.delenv(name, raising=False)
    return site


def doctor():
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def line(output, subject):
    """The finding's mark and reason."""
    (found,) = [one for one in output.splitlines() if one[4:].startswith(f"{subject} ")]
    return found[:2].strip(), found[4:].removeprefix(subject).strip()


def test_without_anything_each_line_has_its_reason_and_what_to_do(bare, nodes):
    code, output = doctor()
    assert code == 1
    assert line(output, "classic SDK") == ("--", "no package neuronxcc")
    assert line(output, "newer SDK") == ("--", "no package nki")
    assert line(output, "driver")[1].startswith(f"{nodes} shows no neuron0")
    assert line(output, "neuron-bench") == ("--", "not on PATH: what nki.benchmark runs")
    assert line(output, "nrtpy") == ("--", "DIFFTEST_NRTPY_PYTHON is not set")
    assert line(output, "--simulate=embedded")[0] == "ok"
    assert line(output, "--simulate=sdk")[0] == "--"
    assert line(output, "--device") == ("--", "a Neuron device cannot be used here.")
    assert "from AWS's own package index, which the setup guide names:" in output
    assert "trn2.3xlarge" in output
    assert "has ever run on one" in line(output, "measurements")[1]


def test_no_package_registry_is_named(bare):
    """AWS's page says which index it is: a wrong one gives the stubs."""
    _, output = doctor()
    assert "://" not in output
    assert "pypi" not in output.lower()


def test_a_stub_is_to_be_uninstalled_first(bare):
    write_metadata(bare, "neuronx-cc", "1.0.post1", STUB_TEXT)
    _, output = doctor()
    assert "an empty stub that is not the SDK" in line(output, "classic SDK")[1]
    assert "-> pip uninstall the stub first" in output


def test_a_working_device_is_said_to_work(bare, chip):
    write_classic(bare)
    code, output = doctor()
    assert code == 0
    assert line(output, "classic SDK") == ("ok", "neuronxcc 2.21.18209.0")
    assert line(output, "driver") == ("ok", str(chip / "neuron0"))
    assert line(output, "--simulate=sdk")[0] == "ok"
    assert line(output, "--device")[0] == "ok"
    assert "through nki.baremetal" in line(output, "--device")[1]


def test_it_says_where_the_kernels_of_each_dialect_run(bare, chip):
    _, output = doctor()
    for package in ("neuronxcc.nki", "nki"):
        assert line(output, f"kernels of {package}")[1] == "run with --simulate=embedded"
    write_classic(bare)
    _, output = doctor()
    assert line(output, "kernels of nki")[1] == "run with --simulate=embedded"
    reason = line(output, "kernels of neuronxcc.nki")[1]
    assert "--simulate=sdk (the Neuron SDK's simulator (neuronxcc 2.21" in reason
    assert f"--device ({chip / 'neuron0'} through nki.baremetal" in reason


def test_kernels_of_today_run_on_todays_sdk(bare, chip):
    write_newer(bare, "0.6.0")
    _, output = doctor()
    assert line(output, "kernels of neuronxcc.nki")[1] == "run with --simulate=embedded"
    reason = line(output, "kernels of nki")[1]
    assert "--simulate=sdk (the Neuron SDK's simulator nki.simulate" in reason
    assert "--device (" in reason


def test_what_a_generation_cannot_do_is_listed(bare, chip):
    write_classic(bare, "2.27.5334.0")
    code, output = doctor()
    assert code == 1
    assert "with 2.32 its outputs are zeros" in output


def test_the_cores_and_where_they_come_from(bare, monkeypatch):
    assert line(doctor()[1], "NeuronCores")[1] == "0 (taken for granted, without neuron-ls)"
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "2-3")
    assert line(doctor()[1], "NeuronCores")[1] == "2, 3 (NEURON_RT_VISIBLE_CORES)"
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "all")
    assert line(doctor()[1], "NeuronCores")[0] == "--"


def test_nrtpy_is_asked_whether_it_is_there(bare, chip, monkeypatch):
    write_newer(bare, "0.6.0")
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", str(write_nrtpy(bare)))
    assert line(doctor()[1], "nrtpy")[0] == "ok"
    (bare / "nrtpy-packages" / "nrtpy.py").write_text("raise ImportError('libnrt.so.1: no file')")
    mark, reason = line(doctor()[1], "nrtpy")
    assert mark == "--"
    assert reason.endswith("ImportError: libnrt.so.1: no file")


def test_a_wrong_setting_is_named(bare, monkeypatch):
    monkeypatch.setenv("DIFFTEST_DEVICE_TIMEOUT", "soon")
    code, output = doctor()
    assert code == 1
    assert line(output, "--device")[1].startswith("DIFFTEST_DEVICE_TIMEOUT: received 'soon'")

from click.testing import CliRunner

from difftest.cli.main import main


def test_migrating_without_libcst(tmp_path, monkeypatch):
    monkeypatch.setattr("difftest.choices.find_spec", lambda name: None)
    (tmp_path / "old.py").write_text("import neuronxcc.nki as nki\n")
    output = tmp_path / "new.py"
    result = CliRunner().invoke(main, ["migrate", str(tmp_path / "old.py"), "-o", str(output)])
    assert result.exit_code == 2
    assert "migrating needs libcst: pip install '/path/to/nki-difftest[migrate]'" in result.output
    assert not output.exists()

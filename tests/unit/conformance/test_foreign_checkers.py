"""The recipes that ask a schema's validator and pyright: stand-ins say what those would."""

import json
import sys
from types import SimpleNamespace

import pytest

from conformance import sarif, type_checking

KERNEL = """import nki
import nki.language as nl


@nki.jit
def kernel(x):
    return nl.ndarray((nl.par_dim(128), 64), x.dtype, nl.shared_hbm)
"""


@pytest.mark.parametrize(("errors", "code"), [((), 0), (("runs",), 1)])
def test_an_invalid_log_is_reported(tmp_path, monkeypatch, capsys, errors, code):
    said = [SimpleNamespace(absolute_path=[one], message="is wrong") for one in errors]
    logs = []

    def validator(schema):
        assert schema == {"a": "schema"}
        return SimpleNamespace(iter_errors=lambda log: logs.append(log) or said)

    known = SimpleNamespace(
        validators=SimpleNamespace(validator_for=lambda schema: validator)
    )
    monkeypatch.setitem(sys.modules, "jsonschema", known)
    (tmp_path / "schema.json").write_text('{"a": "schema"}')
    (tmp_path / "kernel.py").write_text(KERNEL)
    assert (
        sarif.main([str(tmp_path / "schema.json"), str(tmp_path / "kernel.py")]) == code
    )
    assert "1 results, 1 with fixes" in capsys.readouterr().out
    assert logs[0]["runs"][0]["results"][0]["ruleId"] == "NKU302"
    (tmp_path / "kernel.py").write_text("")
    assert sarif.main([str(tmp_path / "schema.json"), str(tmp_path / "kernel.py")]) == (
        code or 2
    )


@pytest.mark.parametrize(
    ("message", "rule", "code"),
    [
        ('Import "torch" could not be resolved', "reportMissingImports", 0),
        ('Import "nki.isa" could not be resolved', "reportMissingImports", 1),
        ("no overload", "reportCallIssue", 1),
    ],
)
def test_errors_of_pyright_about_nki_are_reported(
    tmp_path, capsys, message, rule, code
):
    file = tmp_path / "nki" / "examples" / "script.py"
    file.parent.mkdir(parents=True)
    file.write_text(KERNEL)
    place = {"file": str(file), "range": {"start": {"line": 2}}}
    said = {
        "summary": {"filesAnalyzed": 1},
        "generalDiagnostics": [{**place, "message": message, "rule": rule}],
    }
    pyright = tmp_path / "pyright"
    pyright.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(said)}\nEND\n")
    pyright.chmod(0o755)
    assert type_checking.main([str(tmp_path), str(pyright)]) == code
    assert ("script.py:3: " in capsys.readouterr().out) is bool(code)


def test_a_checkout_without_examples_is_reported(tmp_path, capsys):
    assert type_checking.main([str(tmp_path)]) == 2
    assert "is this v2.32.0?" in capsys.readouterr().err

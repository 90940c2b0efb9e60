import sys
import types

import pytest

from difftest.testing.host import shipped


def test_leaves_the_path_as_it_was():
    before = list(sys.path)
    shipped.import_shipped("reference.transpose")
    assert sys.path == before


def test_the_wheels_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / "shipped_sources").mkdir()
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path)
    assert shipped.shipped_folder() == tmp_path / "shipped_sources"


def test_another_packages_module_is_refused(monkeypatch):
    other = types.ModuleType("reference.transpose")
    other.__file__ = "/elsewhere/reference/transpose.py"
    monkeypatch.setitem(sys.modules, "reference.transpose", other)
    with pytest.raises(ImportError, match="another package's module, at /elsewhere"):
        shipped.import_shipped("reference.transpose")

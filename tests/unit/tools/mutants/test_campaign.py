"""The digest of the package's code, which decides whether kept results still count."""

import os

import pytest

from difftest.support.rounding import round_once
from difftest.tools.mutants import campaign

FILES = ("simulator/a.py", "support/b.py", "tools/scale/c.py")


def digest():
    """Return the digest as a new process computes it."""
    campaign.package_digest.cache_clear()
    return campaign.package_digest()


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("first")
    monkeypatch.setattr(campaign, "PACKAGE", f"{tmp_path}{os.sep}")
    yield tmp_path
    campaign.package_digest.cache_clear()


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_any_module_changes_the_digest(package, name):
    before = digest()
    (package / name).write_text("second")
    assert digest() != before


def test_the_own_package_is_digested():
    assert round_once.__code__.co_filename.startswith(campaign.PACKAGE)
    assert digest() == digest()

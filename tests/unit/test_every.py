"""``@every`` runs each case, and fails where one does."""

import inspect

import pytest

from tests.every import every


def test_each_case_runs_and_all_that_fail_are_named():
    seen = []

    @every("a", (1, 2))
    @every("b, c", ((3, 4), (5, 6)))
    def check(a, b, c):
        seen.append((a, b, c))
        assert (a, b) != (2, 5)
        assert (a, b) != (1, 5)

    with pytest.raises(AssertionError, match="2 of 2 cases of check failed"):
        check()
    assert seen == [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)]


def test_no_case_is_a_failure_and_fixtures_are_requested():
    @every("a", ())
    def empty(a, tmp_path):
        pass

    with pytest.raises(AssertionError, match="empty has no cases"):
        empty(tmp_path=None)
    assert list(inspect.signature(empty).parameters) == ["tmp_path"]


def test_each_case_has_fixtures_of_its_own(tmp_path, monkeypatch, capsys):
    @every("a", (1, 2))
    def check(a, tmp_path, monkeypatch, capsys):
        assert not hasattr(check, "seen")
        assert not list(tmp_path.iterdir())
        assert capsys.readouterr().out == ""
        monkeypatch.setattr(check, "seen", a, raising=False)
        (tmp_path / "file").touch()
        print(a)

    check(tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)

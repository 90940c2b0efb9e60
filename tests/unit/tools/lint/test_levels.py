"""Levels of rules by group, by id, by the named SDK and target, and by pyproject.toml."""

import pytest

from difftest.tools.lint.check import rules
from difftest.tools.lint.files import (
    Level,
    Levels,
    SettingsError,
    levels_by_name,
    project_settings,
    rule_ids,
)
from difftest.tools.lint.rule import Group

OF_GROUPS = {
    Group.CORRECTNESS: "NKL102",
    Group.PORTABILITY: "NKI501",
    Group.UPGRADE: "NKU302",
    Group.PERFORMANCE: "NKI531",
}


@pytest.mark.parametrize(
    ("sdk", "target", "denied"),
    [
        (False, False, {Group.CORRECTNESS}),
        (True, False, {Group.CORRECTNESS, Group.UPGRADE}),
        (False, True, {Group.CORRECTNESS, Group.PORTABILITY}),
    ],
)
def test_a_named_rejection_of_the_compiler_is_denied(sdk, target, denied):
    levels = Levels({}, sdk, target)
    own = {group: levels.of(rules()[id]) for group, id in OF_GROUPS.items()}
    assert own == {one: Level.DENY if one in denied else Level.WARN for one in Group}


def test_a_rule_that_is_inferred_from_a_page_is_not_denied_by_default():
    assert Levels({}, True, True).of(rules()["NKL101"]) is Level.WARN
    assert Levels({"NKL101": Level.DENY}).of(rules()["NKL101"]) is Level.DENY


def test_the_closest_name_wins():
    chosen = levels_by_name(
        {
            Level.ALLOW: ["all"],
            Level.WARN: ["upgrade"],
            Level.DENY: ["NKU302", "performance"],
        }
    )
    levels = Levels(chosen)
    own = {id: levels.of(rules()[id]) for id in (*OF_GROUPS.values(), "NKU303")}
    assert own == {
        "NKL102": Level.ALLOW,
        "NKI501": Level.ALLOW,
        "NKU302": Level.DENY,
        "NKU303": Level.WARN,
        "NKI531": Level.DENY,
    }


def test_names_are_ids_groups_or_all():
    assert rule_ids(["NKL101"]) == {"NKL101"}
    assert {rules()[id].group for id in rule_ids(["performance"])} == {
        Group.PERFORMANCE
    }
    assert rule_ids(["all"]) == set(rules())
    with pytest.raises(
        SettingsError, match="no rule style; the groups are all, correctness"
    ):
        rule_ids(["style"])
    with pytest.raises(SettingsError, match="NKL101 has two levels: deny and allow"):
        levels_by_name({Level.DENY: ["NKL101"], Level.ALLOW: ["NKL101"]})


def test_the_nearest_project_is_read(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.difftest.lint]\nsdk = "2.32"\nallow = ["performance"]\n'
    )
    expected = {"sdk": "2.32", "target": None, "levels": {"performance": Level.ALLOW}}
    assert project_settings(tmp_path / "kernels") == expected
    (tmp_path / "kernels" / "pyproject.toml").write_text("[project]\n")
    assert project_settings(tmp_path / "kernels") == {
        "sdk": None,
        "target": None,
        "levels": {},
    }


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('sdk = "2.99"', "sdk is one of 2.21, .*; got '2.99'"),
        ('target = "trn9"', "target is one of trn1, trn2, trn3; got 'trn9'"),
        ('deny = "all"', "deny is a list of ids and groups; got 'all'"),
        ('deny = ["NKZ1"]', "there is no rule NKZ1"),
        ("colour = 1", "there is no setting colour"),
        ("deny = [", "cannot be read"),
    ],
)
def test_a_setting_without_meaning_is_refused(tmp_path, table, said):
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[tool.difftest.lint]\n{table}\n")
    with pytest.raises(SettingsError, match=said) as error:
        project_settings(tmp_path)
    assert str(file) in str(error.value)

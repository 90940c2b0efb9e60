import pytest

from difftest.support.pyproject import difftest_table
from tests.every import every


def test_the_table_with_its_own_tables(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text(
        '[tool.difftest]\nstrict = true\n[tool.difftest.lint]\nsdk = "2.33"\n'
    )
    assert difftest_table(file) == {"strict": True, "lint": {"sdk": "2.33"}}
    file.write_text("[project]\n")
    assert difftest_table(file) == {}


@every(
    "text, said",
    [
        ("[tool", "Expected"),
        ("tool = 3", "tool is not a table"),
        ("[tool]\ndifftest = 3", "difftest is not a table"),
    ],
)
def test_another_file_is_a_value_error(text, said, tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        difftest_table(file)

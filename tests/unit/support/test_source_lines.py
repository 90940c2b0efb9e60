"""The source of files as reports show it."""

import ast
import linecache

from difftest.support.source_lines import lines_shown, parsed_file


def test_lines_are_shown_within_the_block_alone(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("own = 1\n")
    assert linecache.getline(str(file), 1) == "own = 1\n"
    with lines_shown({str(file): ["shown = 2\n"], "absent.py": ["absent = 3\n"]}):
        assert linecache.getline(str(file), 1) == "shown = 2\n"
        assert ast.unparse(parsed_file("absent.py")) == "absent = 3"
    assert linecache.getline(str(file), 1) == "own = 1\n"
    assert linecache.getline("absent.py", 1) == ""


def test_a_file_that_is_not_python_has_an_empty_tree():
    with lines_shown({"broken.py": ["def (\n"]}):
        assert parsed_file("broken.py").body == []

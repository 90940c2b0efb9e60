"""Tables, cells and code in Markdown."""

from difftest.support.markdown import cell, code_block, inline_code, table_lines


def test_the_last_columns_of_a_table_are_numbers():
    lines = list(table_lines(("kernel", "cases"), [("add", 3)], 1))
    assert lines == ["| kernel | cases |", "|---|--:|", "| add | 3 |"]


def test_a_text_cannot_leave_its_cell_or_its_code():
    assert cell("a|b_c") == "a\\|b\\_c"
    assert inline_code("a`b") == "`a'b`"
    assert code_block("a\n~~~~\nb", "sh") == "~~~~sh\na\n~~~\nb\n~~~~\n"

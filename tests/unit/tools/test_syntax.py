"""The questions about syntax trees that the linter, the migration and the mutants share."""

import ast

import pytest

from difftest.tools import syntax


def expression(text):
    return ast.parse(text, mode="eval").body


def texts(nodes):
    return [ast.unparse(node) for node in nodes]


def test_names_of_a_node_and_names_that_it_binds():
    statement = ast.parse("x[i], (a, *b) = f(c.d, e=g)").body[0]
    assert syntax.names_in(statement) == {"x", "i", "a", "b", "f", "c", "g"}
    assert syntax.bound_names(statement) == {"a", "b"}


def test_calls_are_yielded_from_the_outermost():
    assert texts(syntax.calls_in(expression("f(g(1))[h()]"))) == [
        "f(g(1))",
        "h()",
        "g(1)",
    ]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("f(1, 2, x=3)", "3"),
        ("f(1, 2)", "2"),
        ("f(1)", None),
        ("f(1, y=3)", None),
        ("f(1, 2, **x)", "2"),
    ],
)
def test_an_argument_by_keyword_or_by_position(call, found):
    value = syntax.argument_of(expression(call), "x", 1)
    assert (value and ast.unparse(value)) == found


def test_an_argument_without_a_position_is_a_keyword():
    assert syntax.argument_of(expression("f(1, 2)"), "x") is None


def test_arguments_are_positions_then_keywords():
    assert texts(syntax.arguments_of(expression("f(a, x=b, *c)"))) == ["a", "*c", "b"]


@pytest.mark.parametrize(
    ("call", "has_expansion"),
    [("f(a, x=b)", False), ("f(*a)", True), ("f(**a)", True)],
)
def test_expansions_and_keywords_of_a_call_are_read(call, has_expansion):
    node = expression(call)
    assert syntax.has_expansion(node) is has_expansion
    assert syntax.keywords_of(node).keys() == ({"x"} if "x" in call else set())


@pytest.mark.parametrize(
    ("subscript", "indices"),
    [("t[i]", ["i"]), ("t[i, 0:1]", ["i", "0:1"]), ("t[(i, j)]", ["i", "j"])],
)
def test_indices_and_the_base_of_a_subscript(subscript, indices):
    node = expression(subscript)
    assert [ast.unparse(part) for part in syntax.indices_of(node)] == indices
    assert ast.unparse(syntax.base_of(node)) == "t"
    assert syntax.base_of(node.value) is node.value


def test_literals_and_none_are_distinguished_from_names():
    assert syntax.literal_of(expression("3")) == 3
    assert syntax.literal_of(expression("...")) is ...
    assert syntax.literal_of(expression("x")) is None
    assert syntax.literal_of(None) is None
    assert syntax.is_none(expression("None"))
    assert not syntax.is_none(expression("x"))

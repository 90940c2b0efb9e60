"""A call of an instruction is data, a signature and a record; a fifth may be written by hand."""

import ast
from pathlib import Path

from tests.every import every

FRONTEND = Path(__file__).parents[4] / "difftest/simulator/frontend"
TODAYS = (*(FRONTEND / "nki/isa").glob("*.py"), FRONTEND / "nki/collectives.py")
CLASSIC = tuple((FRONTEND / "classic").glob("*.py"))
AS_DATA = ("call(", "_collective(", "ISA.issues(")
SIGNATURES = "Calls"
"""With that ends the name of a class of signatures."""
BY_HAND = ("public", "ISA.by_hand")


def calls(files):
    """The calls that are data and those by hand, by name, with the line of their decorator."""
    data = {}
    by_hand = {}
    for file in files:
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(SIGNATURES):
                data |= {
                    one.name: ""
                    for one in node.body
                    if isinstance(one, ast.FunctionDef)
                }
            for one in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                decorator = ast.unparse(one)
                line = text.splitlines()[one.lineno - 1]
                if decorator.startswith(AS_DATA):
                    data[node.name] = line
                elif decorator in BY_HAND:
                    by_hand[node.name] = line
    return data, by_hand


@every("files, least", [(TODAYS, 50), (CLASSIC, 30)])
def test_at_most_one_call_in_five_is_written_by_hand(files, least):
    data, by_hand = calls(files)
    assert len(data) >= least
    assert 5 * len(by_hand) <= len(data) + len(by_hand)


@every("files", [TODAYS, CLASSIC])
def test_each_call_by_hand_says_why(files):
    _, by_hand = calls(files)
    assert [name for name, line in by_hand.items() if "# by hand: " not in line] == []


def test_a_call_by_hand_is_found(tmp_path):
    file = tmp_path / "isa.py"
    rows = f"class Isa{SIGNATURES}:\n    def c(): ...\n"
    file.write_text(f"@call(r)\ndef a(): ...\n\n\n@public\ndef b(): ...\n\n\n{rows}")
    assert calls([file]) == ({"a": "@call(r)", "c": ""}, {"b": "@public"})

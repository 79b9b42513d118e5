"""How dense the code may be: one idea a line, modules that are read in one sitting."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

FOLDERS = ("rope_lab", "tasks", "scripts")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").glob("test_*.py"))
NODES = 2_700  # of the syntax tree of a module, the most
WORDS = 10  # of the name of a test, the most
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names of one letter: counts and p values everywhere, and the field's symbols in some folders.
STATISTICS = {"n", "p"}
SYMBOLS = {
    "rope_lab/model": {*"abcdefghijklmnopqrstuvwxyz"},  # formulas
    "rope_lab/exporting/parts": {*"abqkvx"},
    "rope_lab/checking": {*"qkvox"},  # queries, keys, values, outputs and inputs of a layer
    "rope_lab/probe.py": {*"qkvo"},
    "rope_lab/results": {*"xy"},  # axes
    "rope_lab/report": {*"xy"},
}


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text_of(path))))


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def within(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from ast.walk(child)


def places(outer: type | tuple, inner: type | tuple) -> list[str]:
    """Where our sources have an `inner` node in an `outer` one."""
    found = []
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, outer) and any(isinstance(part, inner) for part in within(node)):
                found.append(at(path, node.lineno))
    return found


def named(node: ast.AST) -> str:
    """The name that a node binds, empty if none."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    return ""


def short_names(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Names of one letter and their lines, without those of a comprehension or lambda of one line
    and shapes, which are capital letters.
    """
    brief = set()
    for node in nodes:
        if isinstance(node, (*COMPREHENSIONS, ast.Lambda)) and node.lineno == node.end_lineno:
            brief.update(within(node))
    for node in nodes:
        name = named(node)
        if len(name) == 1 and name.islower() and node not in brief:
            yield name, node.lineno


def test_no_comprehension_holds_another_or_an_assignment():
    assert places(COMPREHENSIONS, (*COMPREHENSIONS, ast.NamedExpr)) == []


def test_no_f_string_holds_a_conditional():
    assert places(ast.JoinedStr, ast.IfExp) == []


def test_names_are_words_or_the_fields_symbols():
    found = []
    for path in SOURCES:
        place = path.relative_to(ROOT).as_posix()
        allowed = set(STATISTICS)
        for folder, symbols in SYMBOLS.items():
            if place.startswith(folder):
                allowed |= symbols
        for name, line in short_names(nodes_of(path)):
            if name not in allowed:
                found.append((name, at(path, line)))
    assert found == []


def test_modules_are_short():
    """In ideas, not in lines: two plain lines are better than one that holds both."""
    assert [path for path in SOURCES if len(nodes_of(path)) > NODES] == []


def test_no_comment_stands_behind_a_closing_bracket():
    """A formatter moves it there, away from the line that it explains."""
    behind = re.compile(r"^ *[)\]}]+[:,]?  # .*", re.M)
    assert [path for path in SOURCES if behind.search(text_of(path))] == []


def test_names_of_tests_are_short():
    found = []
    for path in TESTS:
        found += re.findall(r"^ *def (test_\w+)", text_of(path), re.M)
    assert [name for name in found if len(name.split("_")) - 1 > WORDS] == []


def test_helpers_are_not_in_modules_of_tests():
    assert [path for path in TESTS if re.search(r"^ *from test_", text_of(path), re.M)] == []

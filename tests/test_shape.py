"""How dense the code may be: one idea a line, modules that are read in one sitting."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

FOLDERS = ("rope_lab", "tasks", "scripts")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").glob("test_*.py"))
LINES, WORDS = 300, 10  # of a module, of the name of a test
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names of one letter: counts and p values everywhere, and the field's symbols in some folders.
STATISTICS = {"n", "p"}
SYMBOLS = {
    "rope_lab/model": {*"abcdefghijklmnopqrstuvwxyz"},  # formulas
    "rope_lab/checking": {*"qkvox"},  # queries, keys, values, outputs and inputs of a layer
    "rope_lab/probe.py": {*"qkvo"},
    "rope_lab/results": {*"xy"},  # axes
    "rope_lab/report": {*"xy"},
}


def each(paths: list[Path]) -> pytest.MarkDecorator:
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return pytest.mark.parametrize("path", paths, ids=names)


def within(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from ast.walk(child)


def places(tree: ast.AST, outer: type | tuple, inner: type | tuple) -> list[int]:
    """The lines of `outer` nodes with an `inner` one in them."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, outer)]
    return [node.lineno for node in nodes if any(isinstance(part, inner) for part in within(node))]


def named(node: ast.AST) -> str:
    """The name that a node binds, empty if none."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    return ""


def short_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of one letter and their lines, without those of a comprehension or lambda of one line
    and shapes, which are capital letters.
    """
    brief = set()
    for node in ast.walk(tree):
        if isinstance(node, (*COMPREHENSIONS, ast.Lambda)) and node.lineno == node.end_lineno:
            brief.update(within(node))
    for node in ast.walk(tree):
        name = named(node)
        if len(name) == 1 and name.islower() and node not in brief:
            yield name, node.lineno


@each(SOURCES)
def test_a_line_holds_one_idea(path):
    tree = ast.parse(path.read_text())
    assert not places(tree, COMPREHENSIONS, COMPREHENSIONS), "comprehension in a comprehension"
    assert not places(tree, COMPREHENSIONS, ast.NamedExpr), "assignment in a comprehension"
    assert not places(tree, ast.JoinedStr, ast.IfExp), "conditional expression in an f-string"


@each(SOURCES)
def test_names_are_words_or_the_fields_symbols(path):
    name = path.relative_to(ROOT).as_posix()
    allowed = set(STATISTICS)
    for folder, symbols in SYMBOLS.items():
        if name.startswith(folder):
            allowed |= symbols
    found = short_names(ast.parse(path.read_text()))
    assert not [(name, line) for name, line in found if name not in allowed]


@each(SOURCES)
def test_a_module_is_short(path):
    assert len(path.read_text().splitlines()) <= LINES


@each(SOURCES)
def test_no_comment_stands_behind_a_closing_bracket(path):
    """A formatter moves it there, away from the line that it explains."""
    assert not re.findall(r"^ *[)\]}]+[:,]?  # .*", path.read_text(), re.M)


@each(TESTS)
def test_the_name_of_a_test_is_short(path):
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)]
    tests = [function.name for function in functions if function.name.startswith("test_")]
    assert not [name for name in tests if len(name.split("_")) - 1 > WORDS]


@each(TESTS)
def test_helpers_are_not_in_modules_of_tests(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [module for module in modules if module.startswith("test_")]

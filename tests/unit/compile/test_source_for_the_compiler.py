"""What compiled modules must not do: it means something else compiled, and mypyc says nothing (docs/adr/0021)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checkout import ROOT
from support.compile_modules import compile_module

FILES = [ROOT / "router" / name for name in compile_module("package").modules()]


class Class:
    """What a class statement says: bases, attributes that it stores or declares, properties, methods."""

    def __init__(self, node: ast.ClassDef, known: dict[str, str]) -> None:
        self.name = known[node.name]
        self.bases = [known.get(base.id, base.id) for base in node.bases if isinstance(base, ast.Name)]
        self.declared = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        self.slots: set[str] = set()
        for each in node.body:
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__slots__":
                self.slots |= set(ast.literal_eval(each.value))
        functions = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        self.properties = {
            each.name for each in functions if any("property" in ast.unparse(d) for d in each.decorator_list)
        }
        self.methods = {each.name for each in functions} - self.properties
        self.stored = {
            each.attr
            for function in functions
            for each in ast.walk(function)
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
        }

    @property
    def attributes(self) -> set[str]:
        return (self.declared | self.slots | self.stored) - self.properties


def classes(tree: ast.Module, module: str) -> Iterator[Class]:
    """A module's classes; bases by where they are defined."""
    known = {
        name.asname or name.name: f"{each.module}.{name.name}"
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom)
        for name in each.names
    }
    nodes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    known |= {node.name: f"{module}.{node.name}" for node in nodes}
    for node in nodes:
        yield Class(node, known)


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT / "router").with_suffix("").parts)


CLASSES = {one.name: one for file in FILES for one in classes(ast.parse(file.read_text()), module_of(file))}


def bases(one: Class) -> Iterator[Class]:
    for name in one.bases:
        if name in CLASSES:
            yield CLASSES[name]
            yield from bases(CLASSES[name])


def test_there_are_classes_with_compiled_bases() -> None:
    assert len(CLASSES) > 60
    assert sum(any(bases(one)) for one in CLASSES.values()) > 10


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_what_a_base_stores_is_stored_in_every_subclass(name: str) -> None:
    """Compiled code of the base reads the field, whatever a subclass has in its place: a property there is never asked.

    Counts of several processes were one process's own in this way.
    """
    one = CLASSES[name]
    for base in bases(one):
        assert not (one.properties | one.methods) & (base.attributes - base.properties), base.name
        assert not one.attributes & base.methods, base.name
        assert not one.declared & base.attributes, f"{base.name}: declared twice are two fields"


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_what_works_in_one_form_alone_is_not_used(file: Path) -> None:
    """Compiled classes have no __slots__ to read, and can be referred to by no weak reference."""
    text = file.read_text()
    tree = ast.parse(text)
    read = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    assert not read & {"__slots__", "__dict__", "__code__"}
    assert "weakref" not in text

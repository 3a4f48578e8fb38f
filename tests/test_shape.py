"""The shape of the code, read from its syntax trees: small files, short functions, and objects that change themselves.

What is listed as an exception is looked for, too: one that is no longer needed fails the test.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedaudit
from tests.test_layers import LAYERS

SRC = Path(fedaudit.__file__).parent
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 400, 60, 8

# Torch and Opacus keep what belongs to a module or a parameter in attributes that others set.
TORCH = {
    ("adversary/signals/ghost.py", "m.training"),
    ("defences/higradavg.py", "p.grad_sample"),
}

# Flower hands a message on from mod to mod, and whoever changes it sets its content.
FLOWER = {
    ("integrations/flower/secagg.py", "message.content"),
    ("integrations/flower/secagg.py", "reply.content"),
}

# A new object takes over all that a module holds: `__init__` would make other parameters.
TAKEN_OVER = {("learn/given.py", "made.__dict__"), ("learn/given.py", "module.__dict__")}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = set[tuple[str, str]]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield path.relative_to(SRC).as_posix(), ast.parse(path.read_text())


def everything() -> list[Path]:
    """The product, its tests, the scripts of its pages and its benchmarks."""
    root = Path(__file__).resolve().parents[1]
    return [path for room in (SRC, *(root / r for r in ("tests", "docs", "benchmarks"))) for path in room.rglob("*.py")]


def assigned_on_others(tree: ast.AST) -> set[str]:
    """Attributes that are set, changed or deleted on anything but `self`, by statement, by setattr or in `__dict__`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            found |= set() if _is_self(node.value) else {ast.unparse(node)}
        if isinstance(node, ast.Attribute) and node.attr == "__dict__" and not _is_self(node.value):
            found.add(ast.unparse(node))
        if isinstance(node, ast.Call) and _called(node).strip("_") in ("setattr", "delattr"):
            found |= set() if node.args and _is_self(node.args[0]) else {ast.unparse(node)}
    return found


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Every function with its name, those of classes and those inside other functions, too."""
    for node in ast.iter_child_nodes(tree):
        inner = within
        if isinstance(node, Function | ast.ClassDef):
            inner = f"{within}{node.name}."
        if isinstance(node, Function):
            yield inner[:-1], node
        yield from functions(node, inner)


def parameters(function: Function) -> list[str]:
    """Those with a name of their own: neither self nor *args nor **kwargs."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [parameter.arg for parameter in every]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def lines(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def classes_asked_about(tree: ast.AST) -> set[str]:
    """The names of the classes in isinstance, issubclass, `type(x) is C` and class patterns of match."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in ("isinstance", "issubclass"):
            found.append(node.args[1])
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and _called(node.left) == "type":
            found += node.comparators
        if isinstance(node, ast.MatchClass):
            found.append(node.cls)
    inside = (part for expression in found for part in ast.walk(expression))
    names = [part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in inside]
    return set(filter(None, names))


def test_attributes_are_assigned_on_self_only() -> None:
    found: Found = {(path, what) for path, tree in trees() for what in assigned_on_others(tree)}
    assert found == TORCH | FLOWER | TAKEN_OVER


def test_no_function_is_long() -> None:
    found = {
        (path, name): lines(function)
        for path in everything()
        for name, function in functions(ast.parse(path.read_text()))
        if lines(function) > MOST_LINES_OF_A_FUNCTION
    }
    assert not found


def test_no_function_has_many_parameters() -> None:
    found: Found = {
        (path, name)
        for path, tree in trees()
        for name, function in functions(tree)
        if len(parameters(function)) > MOST_PARAMETERS
    }
    assert found == set()


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in everything()}
    assert not {path: n for path, n in lengths.items() if n > MOST_LINES}


def test_the_audit_never_asks_for_the_class_of_an_attack() -> None:
    attacks = {
        node.name
        for path, tree in trees()
        if path.startswith("adversary/attacks/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert {"BaseAttack", "Fusion"} <= attacks
    for path, tree in trees():
        if path.startswith("audit/"):
            assert not classes_asked_about(tree) & attacks, path


def test_on_top_are_the_rooms_and_nothing_else() -> None:
    top = {path.name.removesuffix(".py") for path in SRC.iterdir() if path.name != "__pycache__"}
    assert top == {*LAYERS, "__init__", "py.typed"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("self.x = 1; self.x += 1; self.x: int = 2", set()),
        ("a.x = 1", {"a.x"}),
        ("self.a.x += 1", {"self.a.x"}),
        ("b.x, self.y = 1, 2", {"b.x"}),
        ("for a.x in y: pass", {"a.x"}),
        ("del a.x", {"a.x"}),
        ("setattr(self, 'x', 1); object.__setattr__(self, 'x', 1)", set()),
        ("setattr(a, 'x', 1)", {"setattr(a, 'x', 1)"}),
        ("object.__setattr__(a, 'x', 1)", {"object.__setattr__(a, 'x', 1)"}),
        ("a.x[0] = 1; y = a.x", set()),
        ("a.__dict__.update(x=1); self.__dict__['x'] = 1", {"a.__dict__"}),
    ],
)
def test_what_counts_as_assigned_on_another(code: str, expected: set[str]) -> None:
    assert assigned_on_others(ast.parse(code)) == expected


def test_what_counts_as_a_parameter_and_as_a_line() -> None:
    code = "class A:\n  def f(self, a, /, b, *args, c=1, **kwargs):\n    def g():\n      pass\n"
    (outer, f), (inner, g) = functions(ast.parse(code))
    assert (outer, inner) == ("A.f", "A.f.g")
    assert parameters(f) == ["a", "b", "c"]
    assert (lines(f), lines(g)) == (3, 2)


@pytest.mark.parametrize(
    "code",
    ["isinstance(x, Fusion)", "isinstance(x, (int, Fusion))", "isinstance(x, a.Fusion | int)", "type(x) is Fusion"],
)
def test_what_counts_as_asking_for_a_class(code: str) -> None:
    assert "Fusion" in classes_asked_about(ast.parse(code))
    assert classes_asked_about(ast.parse("match x:\n  case Fusion(): pass")) == {"Fusion"}
    assert not classes_asked_about(ast.parse("Fusion(x)"))

"""The shape of the code, read from its syntax trees: objects change themselves, and nobody else changes them.

What is listed as an exception is looked for, too: one that is no longer needed fails the test.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

import fedaudit
from tests.test_layers import LAYERS

SRC = Path(fedaudit.__file__).parent

# Torch and Opacus keep what belongs to a module or a parameter in attributes that others set.
TORCH = {
    ("adversary/signals/ghost.py", "layer.__dict__"),
    ("adversary/signals/ghost.py", "m.training"),
    ("defences/higradavg.py", "p.grad_sample"),
}

# Flower hands a message on from mod to mod, and whoever changes it sets its content.
FLOWER = {
    ("integrations/flower/secagg.py", "message.content"),
    ("integrations/flower/secagg.py", "reply.content"),
    # The guard stands in Flower's own connection, and names the messages that it sends itself.
    ("integrations/flower/guard.py", "setattr(module, name, made)"),
    ("integrations/flower/guard.py", "setattr(module, name, before)"),
    ("integrations/flower/guard.py", "message.metadata.__dict__"),
}

# A new object takes over all that a module holds: `__init__` would make other parameters.
TAKEN_OVER = {("learn/tasks.py", "made.__dict__"), ("learn/tasks.py", "module.__dict__")}

# What an estimate is printed from, in that order: one line at sixty places.
BY_POSITION = {"Estimate"}

# A class of attacks that gives itself a name: its options are added as the class is made.
NAMED = {("adversary/attacks/base.py", "cls.name")}

Found = set[tuple[str, str]]


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(path.relative_to(SRC).as_posix(), ast.parse(path.read_text())) for path in sorted(SRC.rglob("*.py"))]


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
    assert found == TORCH | FLOWER | TAKEN_OVER | NAMED


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


def test_no_class_name_is_defined_twice() -> None:
    found: dict[str, list[str]] = {}
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path)
    assert found["BaseAttack"] == ["adversary/attacks/base.py"]
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def taken_by_position(node: ast.ClassDef) -> int:
    """How many arguments a constructor takes by position: of `__init__`, or of a dataclass by its own fields."""
    for made in node.body:
        if isinstance(made, ast.FunctionDef) and made.name == "__init__":
            return len(made.args.args) - 1
    how = [ast.unparse(each) for each in node.decorator_list if ast.unparse(each).startswith("dataclass")]
    if not how or "kw_only=True" in how[0]:
        return 0
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    kinds = [ast.unparse(each.annotation) for each in fields]
    before = kinds.index("KW_ONLY") if "KW_ONLY" in kinds else len(kinds)
    given = [each.value is None or "init=False" not in ast.unparse(each.value) for each in fields[:before]]
    return sum(own and not kind.startswith("ClassVar") for own, kind in zip(given, kinds, strict=False))


def test_constructors_take_at_most_five_arguments_by_position() -> None:
    classes = [node for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert {node.name for node in classes if taken_by_position(node) > 5} == BY_POSITION


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class A:\n  def __init__(self, a, b, *, c): pass", 2),
        ("@dataclass(frozen=True)\nclass A:\n  a: int\n  b: int = 0\n  c: ClassVar[int] = 0", 2),
        ("@dataclass\nclass A:\n  a: int\n  b: int = field(init=False)\n  _: KW_ONLY\n  c: int", 1),
        ("@dataclass(frozen=True, kw_only=True)\nclass A:\n  a: int", 0),
        ("class A:\n  a: int", 0),
    ],
)
def test_what_counts_as_taken_by_position(code: str, expected: int) -> None:
    (node,) = ast.parse(code).body
    assert isinstance(node, ast.ClassDef)
    assert taken_by_position(node) == expected


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


@pytest.mark.parametrize(
    "code",
    ["isinstance(x, Fusion)", "isinstance(x, (int, Fusion))", "isinstance(x, a.Fusion | int)", "type(x) is Fusion"],
)
def test_what_counts_as_asking_for_a_class(code: str) -> None:
    assert "Fusion" in classes_asked_about(ast.parse(code))
    assert classes_asked_about(ast.parse("match x:\n  case Fusion(): pass")) == {"Fusion"}
    assert not classes_asked_about(ast.parse("Fusion(x)"))

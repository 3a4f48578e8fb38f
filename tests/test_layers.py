"""Data goes one way, and so do imports: a module may import only from the layers above it in this list."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import fedaudit
from fedaudit.questions import ROOMS

SRC = Path(fedaudit.__file__).parent
LAYERS = [
    "types",
    "errors",
    "files",
    "toml",
    "config",
    "questions",
    "stats",
    "words",
    "privacy",
    "learn",
    "data",
    "defences",
    "federation",
    "trace",
    "adversary",
    "audit",
    "results",
    "session",
    "report",
    "integrations",
    "server",
    "testing",
    "cli",
    "__main__",
]


def imports(path: Path) -> set[str]:
    """The fedaudit layers a file imports, wherever in the file the import stands."""
    tree = ast.parse(path.read_text())
    return imported(runs_only(tree, layer(path) == "questions") if "questions" in path.parts else tree)


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "fedaudit" else [node.module]
            )
        found |= {name.split(".")[1] for name in names if name.startswith("fedaudit.")}
    return found - {"__version__"}


# Where the files of a question's room stand. The room itself (`__init__`) imports what is heavy inside its methods.
ROOM = {
    "parts": "learn",
    "presence": "learn",
    "inputs": "learn",
    "incoming": "learn",
    "tampering": "learn",
    "labels": "learn",
    "leaves": "learn",
    "look": "learn",
    "crafting": "learn",
    "parties": "federation",
    "watch": "audit",
    "judge": "audit",
    "plan": "session",
    "panel": "report",
}
# The configuration asks questions for their options, and these are sections of a configuration.
MUTUAL = {("config", "questions")}


def layer(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ROOM.get(parts[2], "questions") if parts[0] == "questions" and len(parts) > 2 else parts[0]


def runs_only(tree: ast.Module, at_once: bool) -> ast.Module:
    """Without what only a type checker imports; `at_once`: and without what functions import when they are called."""

    class Running(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
            return None if at_once else node

    found = Running().visit(tree)
    assert isinstance(found, ast.Module)
    return found


def files() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*.py")) if path != SRC / "__init__.py"]


def test_every_module_imports_only_from_the_layers_above() -> None:
    for path in files():
        own = LAYERS.index(layer(path))
        for name in imports(path):
            allowed = LAYERS.index(name) <= own or (layer(path), name) in MUTUAL
            assert allowed, f"{path.relative_to(SRC)} imports {name}, which lies below it"


def test_neither_the_audit_nor_what_prepares_it_knows_a_question_by_name() -> None:
    rooms = {path.name for path in (SRC / "questions").iterdir() if (path / "__init__.py").is_file()}
    assert rooms == set(ROOMS)
    prepared_by = [SRC / "session" / f"{name}.py" for name in ("assemble", "prepare", "replay", "run", "session")]
    for path in [*(SRC / "audit").rglob("*.py"), *prepared_by]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("fedaudit.questions."), path.name


def test_attacks_see_neither_federation_nor_truth() -> None:
    for path in (SRC / "adversary").rglob("*.py"):
        assert "federation" not in imports(path)
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert "Truth" not in names, path.name


def test_report_sees_results_only() -> None:
    panels = (SRC / "questions").glob("*/panel.py")
    seen = {"errors", "files", "toml", "types", "questions", "stats", "words", "results", "report"}
    for path in [*(SRC / "report").glob("*.py"), *panels]:
        assert imports(path) <= seen, path
    for path in (SRC / "questions").glob("*/__init__.py"):  # a room draws its section here, or in its panel
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "sections":
                assert imported(node) <= seen, path


def test_statistics_need_numpy_and_scipy_only() -> None:
    allowed = {"numpy", "scipy", "fedaudit"} | set(sys.stdlib_module_names)
    for path in (SRC / "stats").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {m.split(".")[0] for m in modules} <= allowed, path.name


def test_public_names() -> None:
    assert fedaudit.__all__ == [
        "Audit",
        "AuditResult",
        "Auditor",
        "Block",
        "Candidates",
        "Config",
        "Dataset",
        "Estimate",
        "FedauditError",
        "Game",
        "Guarantee",
        "Records",
        "Round",
        "Settings",
        "TorchTask",
        "Truth",
        "Vantage",
        "auc",
        "load_config",
        "open",
        "record",
        "set_aside",
        "tpr_at_fpr",
    ]
    for name in fedaudit.__all__:
        assert getattr(fedaudit, name) is not None


def loaded_by(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(chr(10).join(sys.modules))"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return set(out.stdout.split())


def test_importing_fedaudit_is_light() -> None:
    assert not loaded_by("import fedaudit") & {"torch", "sklearn", "scipy", "numpy", "pyarrow"}


def test_the_map_of_the_rooms_has_them_all_in_order() -> None:
    text = (SRC.parent.parent / "docs" / "architecture.md").read_text()
    rows = text.split("| room | what it holds |")[1].split("\n\n")[0]
    named = [
        name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1:2][0] if row else "")
    ]
    assert [*named, "__main__"] == LAYERS

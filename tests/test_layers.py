"""Data goes one way, and so do imports: a module may import only from the layers above it in this list."""

import ast
import subprocess
import sys
from pathlib import Path

import fedaudit

SRC = Path(fedaudit.__file__).parent
LAYERS = [
    "types",
    "errors",
    "files",
    "toml",
    "config",
    "stats",
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
    "cli",
    "__main__",
]


def imports(path: Path) -> set[str]:
    """The fedaudit layers a file imports, wherever in the file the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "fedaudit" else [node.module]
            )
        found |= {name.split(".")[1] for name in names if name.startswith("fedaudit.")}
    return found - {"__version__"}


def layer(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*.py")) if path != SRC / "__init__.py"]


def test_every_module_imports_only_from_the_layers_above() -> None:
    for path in files():
        own = LAYERS.index(layer(path))
        for name in imports(path):
            assert LAYERS.index(name) <= own, f"{path.relative_to(SRC)} imports {name}, which lies below it"


def test_attacks_see_neither_federation_nor_truth() -> None:
    for path in (SRC / "adversary").rglob("*.py"):
        assert "federation" not in imports(path)
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert "Truth" not in names, path.name


def test_report_sees_results_only() -> None:
    for path in (SRC / "report").glob("*.py"):
        assert imports(path) <= {"errors", "files", "toml", "types", "stats", "results", "report"}, path.name


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
        "audit",
        "load_config",
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

"""An installation without extras: the same commands as tests/base_install.py runs in a real one, with the modules of
all extras out of reach."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from fedaudit.errors import EXTRAS
from tests.base_install import CASES, judged, prepare

ROOT = Path(__file__).parent.parent
WITHOUT = """
import gc, importlib.util, json, sys
from pathlib import Path
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {absent!r} else found(name, package)
from tests.base_install import CASES
from tests.command import fedaudit
for arguments, *_ in CASES:
    done = fedaudit(*arguments, cwd=Path.cwd())
    print(json.dumps([arguments, done.returncode, done.stdout + done.stderr]))
gc.freeze()
"""


def test_what_reads_and_judges_needs_no_extra_and_the_rest_says_which(tmp_path: Path) -> None:
    absent = {*EXTRAS, "PIL", "transformers", "peft", "tokenizers", "matplotlib", "pandas"}
    prepare(tmp_path)
    command = [sys.executable, "-c", WITHOUT.format(absent=absent)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(CASES), done.stderr
    assert [wrong for one in found if (wrong := judged(*one))] == []


def test_every_package_that_is_imported_comes_with_an_installation() -> None:
    """Nothing is there only because something else happens to bring it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_name(one) for one in project["dependencies"]}
    declared |= {_name(one) for group in project["optional-dependencies"].values() for one in group}
    named = {"sklearn": "scikit-learn", "PIL": "pillow", "mlflow": "mlflow-skinny"}
    brought = {"click", "markupsafe", "ray"}  # by typer, jinja2 and flwr[simulation], which are built on them
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).partition(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"fedaudit", "pydantic_core", "ours"}
    assert {named.get(one, one).replace("_", "-").lower() for one in foreign} <= declared | brought


def _name(requirement: str) -> str:
    return requirement.partition("[")[0].partition(">")[0].partition("=")[0].partition("<")[0].replace("_", "-").lower()

"""Every figure of README and docs has a script that starts, and docs/figures.md names both."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "figures.md").read_text()
SCRIPTS = sorted(DOCS.glob("make_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_can_be_imported_and_is_listed(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts outlive what they import, and nobody notices until a figure has to be made again."""
    monkeypatch.syspath_prepend(DOCS)  # as python does for a script
    found = runpy.run_path(str(script), run_name="imported")
    assert callable(found["main"])
    assert f"docs/{script.name}" in PAGE or f"docs.{script.stem}" in PAGE


def test_every_picture_is_listed_and_every_command_exists() -> None:
    pictures = [path.name for path in DOCS.iterdir() if path.suffix in (".svg", ".png")]
    assert pictures
    assert [name for name in pictures if f"`{name}`" not in PAGE] == []
    named = re.findall(r"docs[/.](make_\w+)", PAGE)
    assert set(named) == {script.stem for script in SCRIPTS}
    assert [link for link in re.findall(r"\]\((\S+?)\)", PAGE) if not (DOCS / link).is_file()] == []


def test_pages_that_show_a_made_table_say_by_which_script() -> None:
    for page in sorted(DOCS.glob("*.md")):
        for script in re.findall(r"docs/(make_\w+\.py)", page.read_text()):
            assert (DOCS / script).is_file(), (page.name, script)

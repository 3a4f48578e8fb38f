"""docs/ is a site: every page has its place in it, every link leads somewhere, and every method has its picture."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fedaudit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("decisions/*.md")])
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def entries(nav: Any) -> Iterator[tuple[str, str]]:
    """Title and page, in order."""
    for entry in nav:
        for title, below in entry.items():
            yield from [(title, below)] if isinstance(below, str) else entries(below)


def under(title: str) -> list[str]:
    (found,) = (entry[title] for entry in SITE["nav"] if title in entry)
    return [page for _, page in entries(found)]


def text_of(page: Path) -> str:
    """Without code, in which brackets are no links and # is no heading."""
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[^\w\s-]", "", code[0]), FENCED.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Of headings whose anchor is the same in a repository's viewer and on the site: they disagree about dashes."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE):
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()))
        if "--" not in slug:
            found.add(slug)
    return found


def test_every_page_has_its_place_and_every_place_a_page() -> None:
    """Decisions may wait for theirs: they are found by search as well."""
    named = [page for _, page in entries(SITE["nav"])]
    assert [page for page in named if not (DOCS / page).is_file()] == []
    assert [page.name for page in DOCS.glob("*.md") if page.name not in named] == [], "add it to zensical.toml"
    assert len(named) == len(set(named))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere_within_the_site(page: Path) -> None:
    for target in LINK.findall(text_of(page)):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.is_relative_to(DOCS), f"{target} is not part of the site: write its name as code"
        assert there.is_file(), target
        assert not anchor or anchor in anchors(there), target


def test_each_of_the_five_readers_has_a_page_that_begins_with_the_command() -> None:
    first = LINK.findall((DOCS / "index.md").read_text().split("## How the methods")[0])
    readers = {page for page in first if page.startswith("start-")}
    assert readers == set(under("In ten minutes"))
    for page in ("flower", "data-owner", "privacy-officer", "researcher", "dp-developer"):
        assert f"start-{page}.md" in readers
        assert "*The command `fedaudit`*" in (DOCS / f"start-{page}.md").read_text()[:300]


def test_the_reference_has_every_public_name_where_it_lives() -> None:
    named = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    public = [getattr(fedaudit, name) for name in fedaudit.__all__]
    assert {f"{one.__module__}.{one.__qualname__}" for one in public} <= set(named)
    for name in named:
        module, _, last = name.rpartition(".")
        assert getattr(import_module(module), last).__doc__, name


@pytest.mark.parametrize("page", under("Methods"))
def test_every_method_has_a_picture_that_explains_it(page: str) -> None:
    top = "\n".join((DOCS / page).read_text().splitlines()[:40])
    found = re.search(r"!\[(.{20,})\]\((\S+\.svg)\)", top)
    assert found is not None, "a picture near the top, with words for those who do not see it"
    assert "<title>" in (DOCS / found[2]).read_text()


@pytest.mark.evidence
def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    """In a copy: the build keeps a cache beside its configuration."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    program = Path(sys.executable).parent / "zensical"
    done = subprocess.run([program, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    built = tmp_path / "build" / "site"
    assert {path.stem for path in built.glob("*.html")} >= {page.stem for page in DOCS.glob("*.md")}
    assert 'id="fedaudit.integrations.loop.record"' in (built / "api.html").read_text()
    for page in built.rglob("*.html"):
        asked = re.findall(r'(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert asked == [], f"{page.name} fetches from elsewhere"

"""Links between pages lead to files and headings that exist, in the repository and on the site.

``make docs`` checks the site as well, with the tool that builds it; this runs everywhere, and covers the pages outside
``docs/``, too. An anchor must be the same for both readers of a page: a code host makes it from the heading by one
rule, the site by another.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.processes import REPOSITORY

PAGES: Final = tuple(
    subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
)
DOCUMENTS: Final = REPOSITORY / "docs"


def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^(```+)[^\n]*\n.*?^\1$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page that are the same on a code host and on the site."""
    shared: set[str] = set()
    for heading in re.findall(r"^#+ (.+?)#*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
        on_host = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        on_site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip())
        if on_host == on_site:
            shared.add(on_host)
    return frozenset(shared)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, those to other hosts excepted."""
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def is_dead(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists() or (page.is_relative_to(DOCUMENTS) and not file.is_relative_to(DOCUMENTS)):
        return True  # The site has only what is below docs/.
    return bool(anchor) and anchor not in anchors(file)


@pytest.mark.parametrize("name", PAGES)
def test_links_of_page_lead_to_files_and_headings_that_exist(name: str) -> None:
    page = REPOSITORY / name
    assert [target for target in links(page) if is_dead(page, target)] == []


def test_pages_of_the_documentation_are_all_in_navigation_and_index() -> None:
    navigation = (REPOSITORY / "zensical.toml").read_text()
    index = DOCUMENTS / "index.md"
    pages = [str(path.relative_to(DOCUMENTS)) for path in DOCUMENTS.rglob("*.md") if path != index]
    assert [page for page in pages if f'"{page}"' not in navigation or page not in links(index)] == []


def test_is_dead_target_that_does_not_exist_returns_true() -> None:
    page = DOCUMENTS / "index.md"
    assert is_dead(page, "reference/nothing.md")
    assert is_dead(page, "reference/settings.md#nothing")
    assert is_dead(page, "../README.md")
    assert not is_dead(page, "reference/settings.md#settings-of-a-broker")

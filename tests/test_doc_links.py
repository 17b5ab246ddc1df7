"""What the documentation points at is there: files, headings, and every decision in the list of decisions."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def anchors(page):
    """The names that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} points at {target}"
        assert not heading or heading in anchors(file), f"{page.name} points at {target}"


def test_every_decision_is_listed_under_its_title():
    listed = (ROOT / "docs/decisions/README.md").read_text()
    for file in DECISIONS:
        title = file.read_text().partition("\n")[0].removeprefix("# ")
        assert int(title.partition(".")[0]) == int(file.name[:3]), file.name
        assert f"- [{title}]({file.name})\n" in listed, f"docs/decisions/README.md does not list {file.name}"


def test_every_setting_is_documented():
    page, package = (ROOT / "docs/seeing.md").read_text(), ROOT / "futurex"
    read = {name for file in package.rglob("*.py") for name in re.findall(r'"(FUTUREX(?:_[A-Z]+)*)"', file.read_text())}
    assert len(read) > 10
    assert not {name for name in read if not re.search(rf"`{name}[=`]", page)}

"""Run every Python example of the documentation: the code blocks of README.md and docs/**/*.md, and docs/*.py.

Pages named as arguments are run alone.

The blocks of one page share one namespace, as a reader would type them.
Each page runs in a process of its own, with a deadline, beside another page: both wait at times.
What failed is said again at the end, with the last lines of what it printed.
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DEADLINE = 300  # seconds per page
LAST_LINES = 25  # of a page that failed
# No `__file__` in the main module: worker processes must not import the page again.
RUN = "import sys; path = sys.argv[1]; exec(compile(open(path).read(), path, 'exec'))"


def code_of(page: Path) -> str:
    """Return the Python of one page; a block keeps the line numbers it has in a Markdown file."""
    text = page.read_text()
    if page.suffix == ".py":
        return text
    code = ""
    for block in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))
        code += "\n" * (lines_before - code.count("\n")) + block.group(1)
    return code


def run_page(page: Path) -> str:
    """Run one page, say whether it passed, and return the last lines of what it printed if it failed."""
    code = code_of(page)
    if not code.strip():
        return ""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"page_{page.stem}.py"  # a real file, so that functions have a source
        copy.write_text(code)
        # Worker processes may outlive a page that failed: a file, unlike a pipe, has an end when the page has.
        with open(Path(folder) / "printed", "w+", errors="replace") as printed:
            try:
                status = subprocess.run(
                    [sys.executable, "-X", "faulthandler", "-c", RUN, str(copy)],
                    cwd=folder, stdout=printed, stderr=subprocess.STDOUT, timeout=DEADLINE,
                ).returncode
            except subprocess.TimeoutExpired:
                status = f"no end within {DEADLINE} s"
            printed.seek(0)
            text = printed.read()
    outcome = f"{page.relative_to(ROOT)}: {'passed' if status == 0 else f'FAILED ({status})'}"
    print(f"{text}{outcome}\n", end="", flush=True)
    return "" if status == 0 else "\n".join([*text.splitlines()[-LAST_LINES:], outcome])


def main() -> int:
    """Run all pages and return the exit status."""
    everything = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docs").glob("*.py"))]
    pages = [ROOT / name for name in sys.argv[1:]] or everything
    with ThreadPoolExecutor(2) as both:
        failed = [report for report in both.map(run_page, pages) if report]
    for report in failed:
        print("=" * 100, report, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

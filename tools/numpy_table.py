"""Write docs/numpy.md: what becomes of every function of NumPy in a futurized function, as the tests measure it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "frontend")]


def main() -> None:
    """Judge every example and write the page."""
    from numpy_cases import CASES, ROUNDED, arguments
    from numpy_judge import judge
    from numpy_page import page

    verdicts = {
        name: [judge(code, arguments, rounded=name in ROUNDED) for code in codes] for name, codes in CASES.items()
    }
    (ROOT / "docs" / "numpy.md").write_text(page(verdicts))


if __name__ == "__main__":
    main()

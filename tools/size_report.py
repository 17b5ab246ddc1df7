"""Print the lines of every module and its longest function, and fail where one is too large to read in a sitting."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LIMIT = 600
FUNCTION_GOAL = 40


def longest_function(source: str) -> tuple[int, str]:
    """Return length and name of the longest function in `source`, `(0, "-")` without any."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return max((((node.end_lineno or 0) - node.lineno + 1, node.name) for node in functions), default=(0, "-"))


def main() -> int:
    """Print the table and return 1 if a module is over the limit."""
    total, too_long = 0, []
    print(f"{'lines':>6}  {'longest function':<44} module")
    for path in sorted((ROOT / "futurex").rglob("*.py")):
        source = path.read_text()
        lines = source.count("\n")
        length, name = longest_function(source)
        mark = " *" if length > FUNCTION_GOAL else ""
        print(f"{lines:>6}  {f'{length} {name}{mark}':<44} {path.relative_to(ROOT)}")
        total += lines
        if lines > MODULE_LIMIT:
            too_long.append(f"{path.relative_to(ROOT)} has {lines} lines, more than {MODULE_LIMIT}: split it")
    print(f"{total:>6}  in all; * = a function of more than {FUNCTION_GOAL} lines")
    print("\n".join(too_long), file=sys.stderr, end="\n" if too_long else "")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env bash
# What depends on the interpreter, on another Python that is promised, where one is installed: tracing rewrites
# functions, reads their code objects and builds tracebacks; and another Python may come with another NumPy. Its argument is the Python that it is to differ from.
# Skips with a reason, and takes two minutes at most.
set -euo pipefail
cd "$(dirname "$0")/.."

mine=$("${1:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
other=""
for version in 3.13 3.12 3.11; do
    [ "$version" = "$mine" ] && continue
    for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
        [ -z "$other" ] && "$candidate" -c "import sys, ensurepip; sys.version_info[:2] == tuple(map(int, '$version'.split('.'))) or sys.exit(1)" 2>/dev/null && other=$candidate
    done
done
[ -n "$other" ] || { echo "no Python but $mine is installed here: the smoke test on another one is skipped"; exit 0; }

venv=.venv-other
rm -rf "$venv"
trap 'rm -rf "$venv"' EXIT
"$other" -m venv "$venv"
echo "== $("$venv/bin/python" --version) =="
timeout 75 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c requirements.lock -e . pytest pytest-timeout hypothesis ||
    { echo "its packages could not be installed in 75 s: the smoke test is skipped"; exit 0; }
"$venv/bin/python" tools/run_docs.py README.md
"$venv/bin/python" -m pytest -q tests/frontend/test_constructs.py tests/frontend/test_tracebacks.py tests/frontend/test_fragments.py \
    tests/frontend/test_without_source.py tests/frontend/test_python_numbers.py tests/frontend/test_redefinition.py \
    tests/frontend/test_masked_arrays.py::test_ends_mean_the_same

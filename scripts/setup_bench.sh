#!/bin/sh
# Makes the virtual environment of what `make bench` compares with (DBOS, supervisord, circus). Never fails the
# benchmarks: where it cannot be made, the reason is left in the file `skipped` beside it, and the report names the
# comparisons that were skipped.
set -eu
venv=$1
python=$2
cd "$(dirname "$0")/.."

echo "setup: $venv, for the comparisons with DBOS, supervisord and circus"
"$python" -m venv --clear "$venv"
if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements-bench.lock \
    2>"$venv/pip.log"; then
    grep '^ERROR' "$venv/pip.log" | tail -1 >"$venv/skipped" || echo "pip failed" >"$venv/skipped"
    echo "setup: DBOS, supervisord and circus could not be installed, their comparisons will be skipped: $(cat "$venv/skipped")" >&2
fi

#!/bin/sh
# Makes the virtual environment for `make demo` and `make test` on a fresh Debian (or any Linux with the tools).
# Installs missing system packages only when it runs as root; otherwise it says what to install.
#
#   scripts/setup.sh VENV [PYTHON]      PYTHON: by default the first python3 that is new enough
set -eu
venv=$1
wanted=${2:-}
cd "$(dirname "$0")/.."

need_package() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing $2"
        apt-get update -qq && apt-get install -y -qq "$2" >/dev/null
    else
        echo "setup: $1 is missing; install it first, e.g.: sudo apt-get install $2" >&2
        exit 1
    fi
}

find_python() {
    for candidate in ${wanted:-python3 python3.11 python3.12 python3.13}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

need_package git git
if [ "$(id -u)" = 0 ]; then
    need_package tmux tmux # for the tests: agents start servers of their own
    # For tests of the order of fsync. Not worth failing for: they say that they were skipped.
    if ! command -v strace >/dev/null 2>&1; then
        echo "setup: installing strace"
        { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq strace >/dev/null; } ||
            echo "setup: strace could not be installed; tests of the order of fsync are SKIPPED" >&2
    fi
    # For tests with another clock. Not worth failing for: they say that they were skipped.
    if ! command -v faketime >/dev/null 2>&1; then
        echo "setup: installing faketime"
        { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq faketime >/dev/null; } ||
            echo "setup: faketime could not be installed; tests with libfaketime are SKIPPED" >&2
    fi
fi
python=$(find_python) || { need_package python3.11 python3.11; python=$(find_python); } || {
    echo "setup: Python 3.11 or newer is needed and was not found" >&2
    exit 1
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing python3-venv"
        apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
    else
        echo "setup: the venv module is missing; install it first, e.g.: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi

echo "setup: virtual environment in $venv with $("$python" --version)"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock 2>"$venv/pip.log" || {
    cat "$venv/pip.log" >&2
    exit 1
}
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e . 2>"$venv/pip.log" || {
    cat "$venv/pip.log" >&2
    exit 1
}

#!/bin/sh
# Runs all of the tests with every Python of this machine from 3.11 on, one of each minor version and Debian's own: as
# this user, and, where this is root, as a plain user too. What cannot be had is said in one line that begins with SKIPPED.
#
#   scripts/test_pythons.sh VENV [PYTEST ARGUMENT…]      PYTHONS="/usr/bin/python3 …": only those. PYTEST_ARGS: for pytest
#
# With arguments (`make test`): only those tests, only with minor versions other than VENV's, only as this user.
set -u
venv=$1
shift
cd "$(dirname "$0")/.."
known=
place=$(mktemp -d /tmp/hf-XXXXXX)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM HUP
[ $# = 0 ] || known=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

find_pythons() { # one "VERSION PATH" per line
    for each in /usr/bin/python3 python3 python3.11 python3.12 python3.13 python3.14 \
        "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/*/bin/python3; do
        "$each" -c 'import sys; v = sys.version_info; v >= (3, 11) and print("%d.%d" % v[:2], sys.executable)' 2>/dev/null
    done
}

failed=
note() { # status, words
    [ "$1" = 0 ] && echo "test-pythons: green: $2" || { echo "test-pythons: FAILED: $2"; failed="$failed; $2"; }
}

own=$(/usr/bin/python3 -c 'import sys; print(sys.executable)' 2>/dev/null)
if [ -n "${PYTHONS:-}" ]; then
    chosen=$PYTHONS
else
    chosen="$own $(find_pythons | grep -v " $own\$" | sort -s -u -k1,1 | cut -d' ' -f2)"
fi
for minor in 3.11 3.12 3.13 3.14; do
    find_pythons | grep -q "^$minor " || echo "test-pythons: SKIPPED: Python $minor is not on this machine"
done
for python in $chosen; do
    version=$("$python" -c 'import platform; print(platform.python_version())')
    [ "${version%.*}" != "$known" ] || continue
    echo "test-pythons: $version ($python), as $(id -un)"
    if ! [ "$venv-$version/.installed" -nt requirements.lock ] || ! [ "$venv-$version/.installed" -nt pyproject.toml ]; then
        ./scripts/setup.sh "$venv-$version" "$python" && touch "$venv-$version/.installed" || {
            [ $# = 0 ] && note 1 "$version: its virtual environment" ||
                echo "test-pythons: SKIPPED: the virtual environment of $version could not be made"
            continue
        }
    fi
    "$venv-$version/bin/python" -m pytest -q -n "$(($(nproc) * 2))" --dist=worksteal --basetemp="$place/t" "$@" ${PYTEST_ARGS:-}
    note $? "$version as $(id -un)"
    [ $# = 0 ] && [ "$(id -u)" = 0 ] || continue
    ./scripts/test_plain_user.sh "$venv-$version" "$python" -q ${PYTEST_ARGS:-}
    note $? "$version as a plain user (or skipped, see above)"
done
[ -z "$failed" ] || { echo "test-pythons: FAILED$failed"; exit 1; }

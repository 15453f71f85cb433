#!/bin/sh
# Runs tests as a plain user on this machine: a temporary user without rights, with an empty HOME, no git identity, the
# locale C, and SIGINT and SIGHUP ignored; by default with Debian's own Python. Only root can make that user.
#
#   scripts/test_plain_user.sh VENV [PYTHON [PYTEST ARGUMENT…]]      without arguments: the files of tests/plain_user.txt
#
# VENV: the virtual environment of `make test`, whose packages are copied if they fit PYTHON. The user, its processes and
# its copy of the checkout are gone when this ends. What cannot be had is said in one line that begins with SKIPPED.
set -eu
venv=$1
python=${2:-/usr/bin/python3}
cd "$(dirname "$0")/.."
if [ $# -gt 2 ]; then
    shift 2
else
    set -- -q $(cat tests/plain_user.txt)
fi

skip() {
    echo "plain user: SKIPPED with $python: $1" >&2
    exit 0
}

[ "$(id -u)" = 0 ] || skip "this run is not root, so the tests before were those of a plain user already"
command -v useradd >/dev/null && command -v runuser >/dev/null || skip "there is no useradd or no runuser"
[ -x "$python" ] || skip "there is no $python"
"$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    skip "it is older than 3.11 or has no venv module (Debian: python3-venv)"

remove_user() { # name: ends what is left of that user, then removes it
    for _ in 1 2 3 4 5 6 7 8 9 10; do # a process that was killed is there for a moment
        runuser -u "$1" -- sh -c 'kill -9 -1' >/dev/null 2>&1 || true
        userdel "$1" 2>/dev/null && return
        sleep 0.5
    done
    echo "plain user: $1 could not be removed: userdel $1" >&2
}

for old in $(sed -n 's/^\(hf-test-[0-9]*\):.*/\1/p' /etc/passwd); do # of a run that was killed
    kill -0 "${old#hf-test-}" 2>/dev/null || remove_user "$old"
done

user=hf-test-$$
place=$(mktemp -d /tmp/hf-XXXXXX)
child=
clean_up() {
    trap '' INT TERM HUP
    [ -z "$child" ] || kill "$child" 2>/dev/null || true
    if id "$user" >/dev/null 2>&1; then remove_user "$user"; fi
    rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

useradd --no-create-home --home-dir "$place/home" --shell /bin/sh "$user"
mkdir "$place/home" "$place/checkout"
tar -c --exclude=./.git --exclude='./.venv*' --exclude='./.*_cache' --exclude=./.hypothesis . | tar -x -C "$place/checkout"
chmod 755 "$place"
chown -R "$user" "$place"
if ! runuser -u "$user" -- "$python" -c 'pass' 2>/dev/null; then
    skip "a plain user cannot run it"
fi

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
packages=$venv/lib/python$version/site-packages
if [ -d "$packages" ]; then
    "$python" -m venv --without-pip "$place/venv"
    # All but the tools that check types and style, and what is only a link to the checkout of root.
    tar -c -C "$packages" --exclude='./mypy*' --exclude='./ruff*' --exclude='*holdfast*' . |
        tar -x -C "$place/venv/lib/python$version/site-packages"
else
    ./scripts/setup.sh "$place/venv" "$python"
fi
echo "$place/checkout/src" >"$place/venv/lib/python$version/site-packages/checkout.pth"
chmod -R a+rX "$place/venv"

echo "plain user: $("$python" --version), $(git --version), uid $(id -u "$user"), empty HOME, no git identity, locale C," \
    "SIGINT and SIGHUP ignored"
(
    cd "$place/checkout"
    trap '' INT HUP
    exec runuser -u "$user" -- env -i HOME="$place/home" USER="$user" LOGNAME="$user" SHELL=/bin/sh LC_ALL=C \
        PATH=/usr/local/bin:/usr/bin:/bin "$place/venv/bin/python" -m pytest -p no:cacheprovider --basetemp="$place/t" \
        -n "$(($(nproc) * 2))" --dist=worksteal "$@"
) &
child=$!
status=0
wait "$child" || status=$?
child=
exit "$status"

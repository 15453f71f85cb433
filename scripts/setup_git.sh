#!/bin/sh
# Builds the newest git that Debian has, for the tests that must hold on it (hooks in a configuration came with git 2.54).
# The source package comes by the machine's own package lists, with the suite changed to sid. The result lies in a cache
# outside the checkout and is built again after a week, if Debian has a newer one.
#
# Never fails: what cannot be had is said in one line, the reason is kept in the cache, and the tests skip themselves with it.
set -u
cache=${HOLDFAST_GIT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/holdfast-git}
mkdir -p "$cache" && cd "$cache" || exit 0
[ -x newest/bin/git ] && [ -z "$(find newest/checked -mtime +7 2>/dev/null)" ] && exit 0

give_up() {
    echo "$1" >skipped
    echo "setup: the newest git is not built, its tests will be skipped: $1" >&2
    exit 0
}

command -v apt-get >/dev/null 2>&1 || give_up "this is no Debian: there is no apt-get"
if ! command -v make >/dev/null 2>&1 || ! command -v cc >/dev/null 2>&1 || ! [ -e /usr/include/zlib.h ]; then
    [ "$(id -u)" = 0 ] || give_up "a compiler, make or zlib1g-dev is missing"
    echo "setup: installing gcc, make and zlib1g-dev"
    { apt-get update -qq && apt-get install -y -qq gcc make libc6-dev zlib1g-dev xz-utils >/dev/null; } </dev/null 2>setup.log ||
        give_up "a compiler could not be installed: $(tail -1 setup.log)"
fi

work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    grep -Eo '(https?|mirror[^ ]*|file|copy)://?[^ ]*/debian/?( |$)' | head -1 | tr -d ' ')
[ -n "$archive" ] || give_up "no package list of Debian was found"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$key] $archive sid main" >"$work/sid.list"
apt() {
    timeout 300 apt-get -q -o Dir::Etc::sourcelist="$work/sid.list" -o Dir::Etc::sourceparts=- -o Dir::State="$work/state" \
        -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work/cache" -o APT::Sandbox::User= "$@"
}
apt update >"$work/log" 2>&1 || give_up "the list of Debian's sources could not be read: $(tail -1 "$work/log")"
(cd "$work" && apt source --download-only --only-source git) >"$work/log" 2>&1 ||
    give_up "git's source could not be had: $(tail -1 "$work/log")"
version=$(ls "$work" | sed -n 's/^git_\(.*\)-[^-]*\.dsc$/\1/p' | head -1)
target=$cache/git-$version
if ! [ -x "$target/bin/git" ]; then
    echo "setup: building git $version"
    mkdir "$work/source" && tar xf "$work"/git_*.orig.tar.* -C "$work/source" --strip-components=1 ||
        give_up "git's source could not be unpacked"
    without="NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_PERL=1 NO_PYTHON=1 NO_TCLTK=1 NO_OPENSSL=1 NO_RUST=1 NO_REGEX=1"
    # shellcheck disable=SC2086 # one word for each library that is left out
    (cd "$work/source" && timeout 900 make -s -j"$(nproc)" $without CFLAGS=-O0 prefix="$target" gitexecdir="$target/bin" \
        git git-submodule git-sh-setup git-sh-i18n) >"$work/log" 2>&1 || give_up "git could not be built: $(tail -1 "$work/log")"
    mkdir -p "$target.new/bin" "$target.new/share/git-core/templates"
    (cd "$work/source" && cp git git-submodule git-sh-setup git-sh-i18n "$target.new/bin/")
    for name in git-upload-pack git-receive-pack git-upload-archive git-remote; do ln -s git "$target.new/bin/$name"; done
    rm -rf "$target" && mv "$target.new" "$target"
fi
"$target/bin/git" --version || give_up "the git that was built does not start"
touch "$target/checked"
rm -f skipped && ln -sfn "$target" newest

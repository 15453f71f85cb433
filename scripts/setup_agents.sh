#!/bin/sh
# Installs the real agent CLIs that the tests drive, in the exact versions of scripts/agents/ (npm checks their hashes;
# asked for by name alone it would silently take old ones on Node 20), into a cache outside the checkout.
#
#   scripts/setup_agents.sh [NAME…]      all of them if none is named
#
# Never fails: what cannot be installed is said in one line, the reason is kept beside the cache, and the tests of that
# CLI skip themselves with it.
set -u
locks=$(cd "$(dirname "$0")/agents" && pwd)
cache=${HOLDFAST_AGENTS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/holdfast-agents}
patience=900

version_of() {
    if [ "$1" = aider ]; then
        sed -n 's/^aider-chat==\([^ ]*\).*/\1/p' "$locks/aider/requirements.lock"
    else
        sed -n 's/.*"dependencies".*: "\([^"]*\)".*/\1/p' "$locks/$1/package.json"
    fi
}

give_up() { # name, target, reason
    echo "$3" >"$2.skipped"
    echo "setup: $1 is not installed, its tests will be skipped: $3" >&2
    return 1
}

last_error() { # log: the line that says most
    grep -iE 'npm (error|ERR!)|^ERROR|^E: ' "$1" | grep -vE 'complete log|^npm (error|ERR!) *$' | head -1 | cut -c1-200
}

need_npm() {
    command -v npm >/dev/null 2>&1 && return 0
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    echo "setup: installing nodejs and npm"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null </dev/null
    command -v npm >/dev/null 2>&1
}

install_npm() { # name, directory, log
    need_npm >"$3" 2>&1 || { echo "E: npm is missing; install it, e.g.: sudo apt-get install nodejs npm" >>"$3"; return 1; }
    cp "$locks/$1/package.json" "$locks/$1/package-lock.json" "$2/" || return 1
    # No install scripts of strangers: what they would do is to find the binary, which `point_at` does.
    # Not `npm ci`: that one insists on the packages of all platforms, which not every mirror of the registry has.
    (cd "$2" && timeout $patience npm install --ignore-scripts --no-audit --no-fund --fetch-retries=1 --no-update-notifier) \
        >>"$3" 2>&1 </dev/null
}

install_aider() { # name, directory, log
    for python in python3.11 python3 none; do
        "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && break
    done
    [ $python = none ] && { echo "E: the hashes are those for Python 3.11, which was not found" >"$3"; return 1; }
    "$python" -m venv "$2/venv" >"$3" 2>&1 &&
        timeout $patience "$2/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
            -r "$locks/aider/requirements.lock" >>"$3" 2>&1 </dev/null
}

point_at() { # name, directory: the program that `bin/NAME` becomes a link to
    case $1 in
    # The npm launchers of these are put together by install scripts; the binaries lie in the packages of the platform.
    claude) set -- "$2"/node_modules/@anthropic-ai/claude-code-*/claude ;;
    opencode) set -- "$2"/node_modules/opencode-*-*/bin/opencode ;;
    aider) set -- "$2/venv/bin/aider" ;;
    *) set -- "$2/node_modules/.bin/$1" ;;
    esac
    for found in "$@"; do # of several (for older processors) the first that runs
        chmod +x "$found" 2>/dev/null
        version_said_by "$found" >/dev/null 2>&1 && break
    done
    echo "$found"
}

version_said_by() { # program
    scratch=$(mktemp -d)
    HOME=$scratch XDG_CACHE_HOME=$scratch timeout 120 "$1" --version 2>&1 </dev/null
    set -- $?
    rm -rf "$scratch"
    return "$1"
}

set_up() { # name
    version=$(version_of "$1")
    target="$cache/$1-$version"
    [ -x "$target/bin/$1" ] && return 0
    # A virtual environment does not survive a move, so everything is made in its place and only `bin` says it is whole.
    rm -rf "$target" && mkdir -p "$target" || return 1
    log="$cache/$1.log"
    echo "setup: installing $1 $version into $target"
    installer=install_npm
    [ "$1" = aider ] && installer=install_aider
    $installer "$1" "$target" "$log" || { give_up "$1" "$target" "$(last_error "$log")"; rm -rf "$target"; return 1; }
    program=$(point_at "$1" "$target")
    said=$(version_said_by "$program") || said="$1 --version fails: $(echo "$said" | tail -1)"
    case $said in
    *"$version"*)
        mkdir "$target/bin.new" && ln -s "$program" "$target/bin.new/$1" && mv "$target/bin.new" "$target/bin"
        rm -f "$target.skipped" "$log" ;;
    *)
        give_up "$1" "$target" "$(echo "$said" | tail -1 | cut -c1-200), not $version"
        rm -rf "$target" ;;
    esac
}

[ $# = 0 ] && set -- claude codex gemini opencode qwen copilot aider
mkdir -p "$cache" 2>/dev/null || { echo "setup: no agent CLI is installed: $cache cannot be made" >&2; exit 0; }
exec 9>"$cache/lock"
flock -w $((patience * 2)) 9 || { echo "setup: no agent CLI is installed: another set-up holds $cache/lock" >&2; exit 0; }
for name in "$@"; do
    if [ -d "$locks/$name" ]; then
        set_up "$name"
    else
        echo "setup: no agent CLI is called $name" >&2
    fi
done
exit 0

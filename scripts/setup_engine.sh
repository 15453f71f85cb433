#!/bin/sh
# For the tests of containers (`make test`), which start an engine of their own and skip themselves, loudly, without one.
# Installs it only where that needs no question: as root, with apt. Never fails.
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0
set --
command -v dockerd >/dev/null 2>&1 || set -- docker.io
command -v busybox >/dev/null 2>&1 || set -- "$@" busybox-static
[ $# = 0 ] && exit 0
echo "setup: installing $*"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null </dev/null; } ||
    echo "setup: they could not be installed; the tests of containers will be skipped" >&2
exit 0

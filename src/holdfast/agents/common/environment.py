"""The allow-list of environment variables that agents inherit."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from holdfast.secrets.redact import is_secret_name

OWN_VARIABLES = "HOLDFAST_"
ALLOWED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "COLORTERM",
    "TZ",
    "TMPDIR",
    "XDG_*_HOME",
    "XDG_RUNTIME_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SSH_AUTH_SOCK",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "JAVA_HOME",
    "GRADLE_USER_HOME",
    "M2_HOME",
    "NVM_DIR",
    "NPM_CONFIG_*",
    "PNPM_HOME",
    "PYENV_ROOT",
    "PIP_*",
    "UV_*",
    "DOTNET_ROOT",
    "ANDROID_HOME",
)


def filter_environment(environment: Mapping[str, str], also: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the variables of `environment` that an agent gets: those of the allow-list and of `env.pass`.

    Variables of Holdfast itself are left out, whatever a pattern matches: they are for the supervisor. The built-in
    patterns are meant for settings of tools, but some also match logins (UV_PUBLISH_TOKEN, NPM_CONFIG__AUTH). An agent
    gets those only if the user names them in `env.pass`.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(OWN_VARIABLES)
        and (
            any(fnmatch.fnmatchcase(name, pattern) for pattern in also)
            or (any(fnmatch.fnmatchcase(name, pattern) for pattern in ALLOWED) and not is_secret_name(name))
        )
    }

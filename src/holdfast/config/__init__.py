"""Settings: built-in defaults < user's config.toml < repository's holdfast.toml < environment < flags.

One table, `SETTINGS`, holds every key with its default, its parser and its meaning. The reference page is generated
from that table. An unknown key or a bad value is an error with its file and line, and with the key that was probably
meant. This package reads files of settings and the environment. It writes only for `init` and `trust`.
"""

from __future__ import annotations

from holdfast.config.layers import Config, list_set_variables, load, load_valid_values
from holdfast.config.problems import ConfigError, SettingProblem
from holdfast.config.read_file import repo_file_path, user_file_path
from holdfast.config.settings import (
    DANGEROUS,
    OF_THE_SUPERVISOR,
    SETTINGS,
    STRATEGIES,
    Setting,
    format_value,
    mask_secrets,
    variable_name,
)

__all__ = [
    "DANGEROUS",
    "OF_THE_SUPERVISOR",
    "SETTINGS",
    "STRATEGIES",
    "Config",
    "ConfigError",
    "Setting",
    "SettingProblem",
    "format_value",
    "list_set_variables",
    "load",
    "load_valid_values",
    "mask_secrets",
    "repo_file_path",
    "user_file_path",
    "variable_name",
]

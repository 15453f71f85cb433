"""Adapters for agent CLIs: data and pure functions that build a command and read its output.

Only `common/versions.py` starts processes. Everything else does no I/O.
"""

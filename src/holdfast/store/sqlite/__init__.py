"""The embedded store: the port's facets on SQLite, their SQL (`queries/`) and the schema (`migrations/`).

It uses apsw, which bundles a SQLite version without the WAL-reset corruption bug.
"""

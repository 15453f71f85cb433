"""The embedded store: SQLite through apsw, which bundles a version without the WAL-reset corruption bug."""

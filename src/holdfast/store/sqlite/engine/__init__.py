"""The engine under the facets: opens, locks, commits, reads and copies the database. It touches the home and the
copies."""

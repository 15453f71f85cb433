"""The engine under the facets: opens, locks, commits, reads and copies the database, and touches no other files than
those of the home and the copies."""

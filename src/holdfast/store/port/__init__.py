"""The store's port: one protocol per noun, and the values that go in and come out. Imports core and base, never
SQLite."""

"""The store's port: one protocol per noun, and the values that go in and come out. The package imports core and base,
never SQLite."""

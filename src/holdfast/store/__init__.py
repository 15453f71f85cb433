"""The store: the only meeting place of CLI, supervisor and UIs."""

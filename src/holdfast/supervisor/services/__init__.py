"""Background services of the supervisor, one duty per module. The services read the store, write through the writer,
and use attempts and workspaces."""

"""Set-up, gates and teardown: copied files and user commands, which run in a workspace as helper processes."""

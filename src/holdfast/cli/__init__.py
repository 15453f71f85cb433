"""The command line: entry point, commands, help, output and completion. It touches only the standard streams."""

"""The commands of the CLI: their options, and the text or JSON that they print. A command reaches the home only through
the api package."""

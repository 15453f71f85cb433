"""The diagnosis of a living agent from its signs of life. Pure."""

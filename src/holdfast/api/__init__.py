"""The layer for interfaces: commands change the store, queries read it, subscriptions follow its events.

Interfaces (cli, tui) may use nothing else of Holdfast.
"""

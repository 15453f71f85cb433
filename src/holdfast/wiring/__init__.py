"""The wiring: the only package that chooses concrete adapters and connects them to the supervisor.

It may import every layer below. Only the layers above (api, cli, tui) may import it.
"""

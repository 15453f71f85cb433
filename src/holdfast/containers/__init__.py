"""Containers (ADR 0016): the engine, the workspace strategy `container`, and the launch of a run in a container.

This package touches the container engine's socket, the files of a run's channel and the home's file `engines`. It
reaches workspaces only through the clone strategy that it extends.
"""

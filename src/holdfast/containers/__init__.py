"""Containers: the engine, the strategy that works in one, and how a run is enclosed. ADR 0016."""

"""Secrets: their lookup from the environment or files, and their redaction from text. The package reads, and writes
nothing."""

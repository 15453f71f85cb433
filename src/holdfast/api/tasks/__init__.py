"""One task: its rows, output, usage, budgets, stages and wait reasons.

These modules read the store and the run directories. They change the store only through api/commands.py.
"""

"""The whole fleet: task lists, vitals, alerts, holds, accounts, workers, schedules, trackers and workflows.

These modules read the store, the settings and the schedule files. They change the store only through api/commands.py.
"""

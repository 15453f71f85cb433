"""Observation of runs and of the machine. This package only reads /proc, cgroup files and run directories.

The one exception is `reading.json`, in which a run's view is saved for the next supervisor and for lists of tasks.
"""

"""Readers for the tables of a file of settings: accounts, workers, schedules, workflows, spending caps of labels.

They read values and report mistakes. Only workflows open other files: the prompts and scenarios that they name.
"""

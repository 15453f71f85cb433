"""Readers for the tables of a file of settings: accounts, workers, schedules, workflows, spending caps of labels.

The readers read values and report mistakes. Only the reader of workflows opens other files: the prompts and scenarios
that workflows name.
"""

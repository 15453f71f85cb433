"""Schedules: cron expressions, due occurrences, overlap and misfire rules. Pure."""

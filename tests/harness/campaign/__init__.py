"""The fault campaign: families of faults, each with cases that a word replays, and one table of what they showed."""

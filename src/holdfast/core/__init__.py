"""The pure core: its functions decide and do no I/O. The time and random numbers are always parameters."""

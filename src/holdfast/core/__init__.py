"""The pure core: it decides and does no I/O. The time and random numbers are always parameters."""

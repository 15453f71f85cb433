"""The pure core: it decides and does no I/O. `now` and randomness are always parameters."""

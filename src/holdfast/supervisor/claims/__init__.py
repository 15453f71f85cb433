"""Claims: which task starts next, for which worker lane, and whether the machine has room. They use the store and the
attempts."""

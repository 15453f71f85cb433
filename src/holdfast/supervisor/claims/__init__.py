"""Claims: which task starts next, for which worker lane, and whether the machine has room. The package uses the store
and the attempts."""

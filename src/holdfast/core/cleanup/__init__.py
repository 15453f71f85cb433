"""The comparison of ledger, disk and processes that a sweep acts on. Pure."""

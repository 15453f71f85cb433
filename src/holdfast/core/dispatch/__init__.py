"""The decisions before a claim: accounts, holds, pressure, spending, workers. Pure."""

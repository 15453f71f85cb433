"""Dispatch: what a start depends on (accounts, holds, probes, slots, spending, workers). Its functions run in the
caller's transaction on the store."""

"""The supervisor: observes, asks the core, applies. It keeps no truth in memory."""

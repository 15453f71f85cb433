"""The screen of one task and its pages: output, info, events, runs, results, saved work, related tasks and diff."""

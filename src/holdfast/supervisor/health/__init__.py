"""Health of running agents: facts, verdicts and alerts. It reads /proc and run directories, and stops runs through
their attempts."""

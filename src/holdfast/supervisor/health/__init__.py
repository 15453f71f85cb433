"""Health of running agents: facts, verdicts and alerts. The package reads /proc and run directories, and stops runs
through their attempts."""

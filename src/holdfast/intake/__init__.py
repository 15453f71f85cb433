"""The step from a request to a task: checks, settings, agents, repository. The package reads settings and calls git. It
writes only through a transaction of the store."""

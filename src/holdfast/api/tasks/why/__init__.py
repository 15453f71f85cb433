"""Why a task waits: the reasons, the facts they come from, and their words."""

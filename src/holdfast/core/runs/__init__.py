"""The end of a run and what follows: outcome, policy, retry budgets, resume, preserve. Pure."""

"""All that an interface may use: commands that change, queries that look, subscriptions that follow."""

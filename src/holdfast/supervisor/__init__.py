"""The supervisor process: it observes, asks the core for decisions, and applies them. All durable state is in the
store, none in memory."""

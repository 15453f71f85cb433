"""The supervisor: observes, asks the core for decisions, applies them. All durable state is in the store, none in
memory."""

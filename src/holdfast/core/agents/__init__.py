"""The events of agents and what they add up to: usage, limits, answers. Pure."""

"""Output for people and scripts: tables, colours, JSON and agent events. It touches only the standard streams."""

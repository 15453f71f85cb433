"""Workflows: drafts, templates, stages, results and hand-overs. Pure."""

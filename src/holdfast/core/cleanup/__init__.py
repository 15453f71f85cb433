"""Cleanup."""

"""Removal."""

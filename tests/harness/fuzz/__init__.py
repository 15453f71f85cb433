"""Inputs of every kind that Holdfast takes, spoilt in every way: what the family `fuzz` of the campaign plays."""

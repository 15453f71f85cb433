"""Faces of Holdfast. They see only api, config and errors."""

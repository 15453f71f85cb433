"""The Python API: `holdfast.Client`, its values and its errors. Import them from `holdfast` (docs/howto/python.md)."""

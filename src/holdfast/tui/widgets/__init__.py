"""The widgets that several screens share, and the base classes of screens. They draw rows of `holdfast.api`."""

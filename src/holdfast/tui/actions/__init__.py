"""The actions behind the keys: their table, what each does through `holdfast.api`, the runner, and the palette."""

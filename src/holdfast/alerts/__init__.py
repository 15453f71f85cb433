"""How alerts reach people: the port and its adapters."""

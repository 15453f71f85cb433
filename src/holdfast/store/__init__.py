"""The store: the port that every layer writes through, its SQLite adapter, and the doorbell that wakes a supervisor.

The CLI, the supervisor and the user interfaces meet only here. The package touches the database in Holdfast's home, its
copies, and three small files there: a lock, a FIFO and a disk reserve.
"""

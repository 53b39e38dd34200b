"""Row capture in SQLite by triggers."""

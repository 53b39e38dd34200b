"""A program that writes: `busy_writer.py DATABASE TRANSACTIONS`, each of one to seven rows that say so; some are rolled back."""

from __future__ import annotations

import sqlite3
import sys

database, transactions = sys.argv[1], int(sys.argv[2])
writer = sqlite3.connect(database, isolation_level=None, timeout=900)
writer.execute("pragma synchronous = off")
for number in range(transactions):
    writer.execute("begin")
    for row in range(size := 1 + number % 7):
        writer.execute("insert into orders(status, total) values(?, ?)", (f"{number}: {row + 1} of {size}", number))
    writer.execute("rollback" if number % 5 == 4 else "commit")

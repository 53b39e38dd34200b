"""What Penstock does here and now: `make bench`, or `python -m bench NAME...`."""

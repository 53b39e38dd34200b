"""Delivery to a destination that accepts requests: in order, with several requests under way, retries, and a search for poison."""

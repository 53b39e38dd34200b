"""Poison: changes that cannot be delivered, and the keys that wait for them."""

"""Changes to a destination that takes requests: in order, several requests under way, repeated, and without poison."""

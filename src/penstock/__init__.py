"""Change feeds on Spark: every committed change, in order, at least once."""

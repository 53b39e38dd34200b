"""Sources of changes: one folder for each kind."""

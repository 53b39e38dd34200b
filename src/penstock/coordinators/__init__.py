"""State stores: one folder for each kind."""

"""How far a pipeline has delivered, and where it continues."""

"""The user's function."""

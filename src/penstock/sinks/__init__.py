"""Where changes go: one folder for each kind of sink."""

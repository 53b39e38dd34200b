"""Where changes go: one module or folder for each kind of sink."""

"""Where changes come from: one module or folder for each kind of source."""

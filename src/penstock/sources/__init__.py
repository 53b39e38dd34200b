"""Where changes come from: one folder for each kind of source."""

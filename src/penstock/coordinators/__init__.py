"""Where terms and watermarks are kept: one folder for each kind of store."""

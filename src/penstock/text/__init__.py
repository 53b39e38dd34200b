"""Values of pipeline files and messages, and their text."""

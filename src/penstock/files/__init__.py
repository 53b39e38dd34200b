"""Folders and files: their modes, their space, and sockets."""

"""The program `penstock`: one module for each command."""

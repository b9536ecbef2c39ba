"""Stands in for gguf where a machine with a GPU hasn't got it: names that are imported, for files that aren't read."""

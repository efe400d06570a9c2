"""Nodes taken away on purpose: empty ones, drifted ones, and ones whose pods fit elsewhere for less money."""

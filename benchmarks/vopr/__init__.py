"""Whole platforms that nobody wrote: drawn from a seed, rehearsed for a month, and shrunk where they fail.

`generate` draws the documents, `judge` rehearses them and names what went wrong, `shrink` finds the smallest documents
with the same fault, `sweep` runs many in processes of their own. `python -m benchmarks.vopr --help` is the way in.
"""

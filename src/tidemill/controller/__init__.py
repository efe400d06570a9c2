"""The process `tidemill run`: when to tick, who leads, and what people and Prometheus are shown of it.

It composes nothing: `cli/run.py` gives it the ports. What to do is decided elsewhere.
"""

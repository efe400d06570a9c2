"""Tidemill: GPU capacity that comes and goes, put to work while it lasts."""

__version__ = "0.1.0"

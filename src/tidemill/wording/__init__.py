"""Sentences for people, made from typed reasons: one module per subject. No program reads what is written here."""

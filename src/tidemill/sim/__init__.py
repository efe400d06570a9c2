"""Cloud, Cluster and Clock once more: in memory, in virtual time, seeded.

A product of its own: rehearsals run on it before a dollar is spent, and the engine that runs on it is the
engine that runs in production, unmodified.
"""

"""Benchmarks: workloads, a plain reference, lower bounds, and runs that measure the packer, the engine and the planner.

What judges the packer shares no code with it: a rule misread there must not be misread here in the same way.
The product never imports this package.
"""

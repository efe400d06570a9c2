"""What judges the packing solver: workloads, a checker, a plain reference, bounds, and the run that times it.

Nothing here shares a line with the solver: a rule misread there must not be misread here in the same way.
The product never imports this package; only the command line and the tests do.
"""

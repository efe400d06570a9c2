"""How fast and how well pods are packed: workloads, a checker, a plain reference and lower bounds (`tidemill bench`).

What judges the packer shares no code with it: a rule misread there must not be misread here in the same way. Only the
command line and the tests import this package.
"""

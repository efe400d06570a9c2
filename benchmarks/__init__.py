"""Benchmarks: runs that measure the engine, the planner and the simulator, also beside others; chaos; exact optima.

The packing of pods is measured by `tidemill bench pack` (`tidemill.bench`). The product never imports this package.
"""

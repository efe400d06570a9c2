"""AWS over boto3: `ports.Account` (`account`) and `ports.Compute` (`compute`) for a real account or the simulated one.

Records become the engine's objects once, here, by pure functions that reject what they do not know. Nothing here
decides: the engine says what to launch or buy, and `provision` what a launch is made of.
"""

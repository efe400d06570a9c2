"""One search over several types, counts, lengths, zones and starts, and what to try next where it finds nothing.

EC2 answers one question at a time, with at most six offers. A request becomes questions (`request`); they are asked
within a budget of requests and at a bounded rate, and an empty answer leads to similar questions (`search`). `proposal`
turns the offer that a person chose into an intent.
"""

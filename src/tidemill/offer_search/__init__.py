"""One search over several types, counts, lengths, zones and starts, and what to try next where it finds nothing.

EC2 answers one question at a time, with at most six offers. Here a wish becomes questions (`wish`), they are asked
within a budget of requests and a rate (`search`), and an empty answer is followed by the nearest questions (`nearby`).
"""

"""The flight recorder: every tick of an engine kept, so that any decision can be made again and explained.

`decide` is pure, so a recording needs the documents and the worlds, not the plans: of each plan a digest is kept, which
proves that a replay makes the same one. Worlds are kept as changes, since little changes between two ticks.

    writer.py       `Recorder`: segments in a folder, the oldest removed when there are too many bytes
    world_codec.py  a world as bytes: whole, or what changed since the one before
    reader.py       `read`: the ticks of a folder, in order
    replay.py       the same decisions again, by the same documents or others
"""

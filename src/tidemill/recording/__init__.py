"""The flight recorder: every tick of an engine kept, so that any decision can be made again and explained.

`decide` is pure, so a recording needs the documents and the worlds, not the plans: of each plan its actions and a
digest are kept, which proves that a replay makes the same one. Worlds are kept as changes: little changes from tick to
tick.

    writer.py       `Recorder`: segments in a folder, the oldest removed when there are too many bytes
    world_codec.py  a world as bytes: whole, or what changed since the one before
    plan_digest.py  what two plans are compared by
    secrets.py      what looks like a secret is left out
    reader.py       `Recording`: the ticks of a folder or a file, in order; what cannot be read is named
    replay.py       the same decisions again, by the same documents or others
"""

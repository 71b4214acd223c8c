"""Other tools' profiles, in and out, each format in a file of its own found by one registry.

Holds: `pstats`, `chrome`, `speedscope`, `folded` and our own `torchstone`. Touches: the files it
is given. Every reader is bounded in memory and time and gives a `Profile` that keeps the promises
of the record, or one sentence on why it cannot.
"""

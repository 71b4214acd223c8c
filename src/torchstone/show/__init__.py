"""Records for people and for other programs: terminal text, Markdown, pages and the public JSON.

Holds: the reports of a result and of a run, the listings, the progress lines, the CSV, the
stand-alone page of a profile (its scripts and styles are in `assets`) and the number formats.
Touches: the stream it is given for progress, nothing else. Imports `records`, how trees are built
from `profile` and, only when a figure is wanted, `stats`; every statistic shown is computed there.
Nothing is imported here: a list needs two modules of thirty.
"""

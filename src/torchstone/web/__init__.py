"""The dashboard: stored runs as pages, as a read API, and as a static site; it only reads.

Holds: views (from a store and what a URL asks to the records of a page), templates and assets that
draw them, the server and the writer of the static site. Touches: the database, for reading only,
the socket it listens on, and the folder a site is written to. May import every package but `cli`.
"""

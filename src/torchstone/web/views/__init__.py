"""From a store and what a URL asks to the records of a page; nothing here knows of HTML or HTTP.

Holds: one file a page, and the parts that several share. Touches: nothing but the source it is
given.
"""

"""``make docs``: the reference pages that are made from the code, one file per kind of page."""

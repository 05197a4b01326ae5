"""The hardware of a machine: its parts, the search index, the query language, and differences."""

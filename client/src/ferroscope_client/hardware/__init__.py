"""Hardware as inventories describe it: readings, health, names, and the fields of the search query language."""

"""What a machine is made of: the parts of an inventory, the search index, the query language, differences."""

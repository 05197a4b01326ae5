"""A small HTTP framework: routes, decoding, errors, microversions, paging; it knows none of the APIs above it."""

"""A small HTTP framework: routes, decoding, errors, microversions, paging. It is independent of the APIs above it."""

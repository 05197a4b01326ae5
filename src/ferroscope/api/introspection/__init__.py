"""The Introspection API, as ironic-inspector published it."""

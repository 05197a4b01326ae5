"""Object stores: S3 and OpenStack Swift, each a few verbs over HTTP with a deadline."""

"""What each release has left behind, and processes of a release beside this one's."""

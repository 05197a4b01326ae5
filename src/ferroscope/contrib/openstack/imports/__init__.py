"""Taking over the data of Ironic and of ironic-inspector, once or while both run."""

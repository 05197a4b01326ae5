"""An attached Bare Metal service (Ironic, or another Ferroscope) as the source of nodes."""

"""What every adapter of a port must do: one suite per port, over all adapters, on real servers."""

"""Starting and stopping: wiring of adapters to roles, signals, processes."""

"""How waiting threads and processes hear of changes: what implements ``contracts.queue.Bus``."""

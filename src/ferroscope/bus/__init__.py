"""How threads that wait hear of changes: the other side of ``ports.bus``."""

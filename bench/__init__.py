"""What Ferroscope costs on this machine: ``python -m bench``.

Real processes, a real database on disk, a simulated fleet beside them. Every figure comes with the
machine, the versions and the method; nothing is measured that an operator could not see too.
"""

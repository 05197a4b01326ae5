"""``ferroscope ramdisk``: makes the ramdisk from Debian's packages and ironic-python-agent, and looks after it.

``root/`` has the files that we add to Debian's, ``steps/`` what runs in the new root. Every file is pure except
``commands.py``, ``host.py``, ``sources.py``, ``signature.py`` and ``build.py``, which run programs.
"""

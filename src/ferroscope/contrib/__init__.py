"""Optional parts: each package is a subject with all that belongs to it, such as roles, commands, options and routes.

A part uses the packages of the service, never those of another part, and the service imports none of them: it finds
them as it finds the packages of others, by their entry points (see ``config.added``).
"""

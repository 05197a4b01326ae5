"""The HTTP server for a WSGI application, on asyncio and httptools. It knows no routes and does not judge callers.

``server.py`` has the listeners and the loop, ``connection.py`` HTTP/1.1, ``tls.py`` the layer below, ``limits.py`` the
choice of connections to close, ``wsgi.py`` the call of the application, ``agreed.py`` what both sides agree on.
"""

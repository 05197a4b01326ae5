"""The HTTP server for a WSGI application, on asyncio and httptools. It knows no route, and decides nothing of callers.

``server.py`` has the listeners and the loop, ``connection.py`` HTTP/1.1, ``tls.py`` what is below it, ``limits.py``
which connections to close, ``wsgi.py`` the call of the application, ``agreed.py`` what both have agreed on.
"""

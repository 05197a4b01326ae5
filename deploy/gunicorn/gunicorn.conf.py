"""gunicorn (23 or newer) for both APIs of Ferroscope.

FERROSCOPE_CONFIG=/etc/ferroscope/ferroscope.conf gunicorn -c /etc/ferroscope/gunicorn.conf.py

gunicorn needs a load balancer in front that waits for complete requests, such as deploy/haproxy/haproxy.cfg: without
one, a few slow clients occupy all threads. docs/how-to/serve-with-apache-or-gunicorn.md explains the settings.
"""

wsgi_app = "ferroscope.wsgi:application"
# The second port must be [api] introspection_port: it tells the two APIs apart.
bind = ["127.0.0.1:6385", "127.0.0.1:5050"]

workers = 4
worker_class = "gthread"
# At most [database] pool_size; set [api] threads to the same number.
threads = 8
# Workers share the memory of what the parent has imported. They read the configuration themselves: SIGHUP applies a
# changed one, an upgrade needs a restart.
preload_app = True
worker_tmp_dir = "/dev/shm"  # noqa: S108  # gunicorn checks by a file there whether its workers hang

# Longer than any other timeout for a request, here and in the load balancer.
timeout = 90
graceful_timeout = 30
# Longer than the load balancer keeps idle connections, so that it never sends a request on one that is being closed.
keepalive = 75

limit_request_line = 8190
# Scheme and client address come from [api] public_url and trusted_proxies only.
secure_scheme_headers = {}
forwarded_allow_ips = ""
control_socket_disable = True


def on_starting(_server):
    """Refuse to start if the configuration is invalid."""
    from ferroscope.wsgi import application

    application.check()


def post_worker_init(worker):
    """Connect to the database and join the members now, not with the first request."""
    worker.wsgi.start()

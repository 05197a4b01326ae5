"""``[ferroscope]`` in ironic.conf: where Ferroscope's Introspection API is, how to log in, how patient to be."""

from ironic.conf import auth
from oslo_config import cfg

GROUP = "ferroscope"
SERVICE_TYPE = "baremetal-introspection"
_TIMEOUT = 30

OPTIONS = [
    cfg.IntOpt(
        "status_check_period",
        default=10,
        min=1,
        help="Seconds between two questions to Ferroscope how the inspections of this conductor's nodes go on.",
    ),
    cfg.IntOpt(
        "outage_timeout",
        default=900,
        min=0,
        help="Seconds that an inspection may wait for a Ferroscope that does not answer, or no longer accepts the "
        "credentials; after that it fails. Must be less than [conductor] inspect_wait_timeout, which ends any of them.",
    ),
]


def register(conf):
    """Declare the options, those of keystoneauth included."""
    conf.register_opts(OPTIONS, group=GROUP)
    auth.register_auth_opts(conf, GROUP, service_type=SERVICE_TYPE)
    conf.set_default("timeout", _TIMEOUT, group=GROUP)


def list_opts():
    """Return what the generator of sample files shows."""
    return [(GROUP, auth.add_auth_opts(OPTIONS, service_type=SERVICE_TYPE))]

"""A PXE filter hears of changes over RabbitMQ, where its database cannot tell."""

from __future__ import annotations

from pathlib import Path

from tests.support.pxe.filtered import FAST, READY, FilteredLab
from tests.support.pxe.lab import Lab
from tests.support.servers import Server
from tests.system.pxe.test_pxe_filter import BUSY


def test_rabbitmq_wakes_an_open_filter_where_the_database_cannot(
    tmp_path: Path, mariadb_url: str, shared_rabbitmq: Server
) -> None:
    never = "sync_period = 0"  # but for a notification, it would look again in RECONCILE_SECONDS
    with Lab(tmp_path, hosts=1) as lab:
        filtered = FilteredLab(lab, mariadb_url, options=never, sections=FAST, broker=shared_rabbitmq.port)
        filtered.start(filtered.hosts[0])
        filtered.wait_open()
        node = filtered.node(BUSY)  # the channel deny
        filtered.wait_applied()
        prober = lab.prober()
        prober.add(BUSY)
        assert prober.quiet(BUSY, seconds=0.5) == []
        filtered.inspect(node)  # the channel allow
        assert prober.wait(BUSY, seconds=READY) is not None
        filtered.delete_ports(node)
        filtered.wait_applied()
        assert (filtered.record().allowed, filtered.record().denied) == (0, 0)

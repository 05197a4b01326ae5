"""What ``ferroscope all`` tells who has just started it: page, first command, place of the data."""

from __future__ import annotations

from ferroscope.config.options import ApiSettings
from tests.support.rows import each


@each(
    ("api", "url"),
    [
        (ApiSettings(), "http://127.0.0.1:6385/ui"),
        (ApiSettings(host=("0.0.0.0",)), "http://127.0.0.1:6385/ui"),
        (ApiSettings(host=("2001:db8::1",)), "http://[2001:db8::1]:6385/ui"),
        (ApiSettings(host=("localhost", "10.20.0.5")), "http://10.20.0.5:6385/ui"),
        (ApiSettings(tls_certificate_file="/etc/c.pem"), "https://127.0.0.1:6385/ui"),
        (ApiSettings(public_url="https://bm.example.org/"), "https://bm.example.org/ui"),
        (ApiSettings(host=("10.20.0.5",), public_url="https://example.org/baremetal"), "http://10.20.0.5:6385/ui"),
        (ApiSettings(enable_ui=False), ""),
        (ApiSettings(bare_metal_port=0), ""),
    ],
)
def test_the_page_is_where_a_browser_reaches_it(api: ApiSettings, url: str) -> None:
    assert api.page_url == url

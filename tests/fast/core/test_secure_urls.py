"""Where an image is by https, for BMCs that refuse http: openbmc/bmcweb, and others."""

from __future__ import annotations

from ferroscope.core.virtual_media import secure_url
from tests.support.rows import each

API = "http://192.0.2.1:6385"


@each(
    ("url", "base", "public", "secure"),
    [
        (f"{API}/v1/media/ipa.iso", API, "https://api.example.com", "https://api.example.com/v1/media/ipa.iso"),
        (
            f"{API}/v1/media/ipa.iso",
            f"{API}/",
            "https://api.example.com/x/",
            "https://api.example.com/x/v1/media/ipa.iso",
        ),
        (f"{API}/v1/media/ipa.iso", API, "", ""),
        (f"{API}0/ipa.iso", API, "https://api.example.com", ""),
        ("http://images.example.com/ipa.iso", API, "https://api.example.com", "https://images.example.com/ipa.iso"),
        ("http://images.example.com:80/ipa.iso?a=b", "", "", "https://images.example.com/ipa.iso?a=b"),
        ("http://[2001:db8::1]/ipa.iso", "", "", "https://[2001:db8::1]/ipa.iso"),
        ("http://images.example.com:8080/ipa.iso", "", "", ""),
        ("https://images.example.com/ipa.iso", API, "https://api.example.com", ""),
        ("nfs://images.example.com/ipa.iso", "", "", ""),
        ("http://images.example.com:x/ipa.iso", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_an_image_is_where_the_api_or_the_same_server_has_it_by_https(
    url: str, base: str, public: str, secure: str
) -> None:
    assert secure_url(url, base, public) == secure

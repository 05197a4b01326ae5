"""MAC spellings, provision states and reason codes: the small vocabularies that everything shares."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ferroscope_client.core import mac_addresses, values
from ferroscope_client.core.explanations import HINTS, hint
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import ACTIVE, INSPECTABLE, OF_STATE, RESTING_VERBS, UNDER_WAY, Provision
from tests.support import misses
from tests.support.rows import each

OCTETS = st.lists(st.integers(0, 255), min_size=6, max_size=6)
STORED = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


@given(OCTETS, st.sampled_from([":", "-"]), st.booleans())
def test_every_spelling_of_a_mac_is_stored_in_one_form(octets: list[int], separator: str, upper: bool) -> None:
    stored = ":".join(f"{octet:02x}" for octet in octets)
    text = stored.replace(":", separator)
    assert mac_addresses.normalized_mac(text.upper() if upper else text) == stored


@given(
    st.one_of(
        st.text(),
        st.text(alphabet="0123456789abcdefABCDEF:-", max_size=22),
        st.none(),
        st.integers(),
        st.lists(st.text()),
        st.binary(),
    )
)
def test_anything_else_is_a_mac_in_its_stored_form_or_none(value: object) -> None:
    result = mac_addresses.normalized_mac(value)
    assert result is None or STORED.match(result)


@each(
    "text",
    [
        "",
        "aabbccddeeff",
        "aa:bb:cc:dd:ee",
        "aa:bb:cc:dd:ee:ff:00",
        "aa:bb:cc:dd:ee:gg",
        "aa:bb:cc:dd:ee:ff\n",
        " aa:bb:cc:dd:ee:ff",
        "20-aa-bb-cc-dd-ee-ff",
        "01:aa:bb:cc:dd:ee:ff",
        "aa:bb:cc:dd:ee:\N{LATIN SMALL LIGATURE FF}",
        "\N{ARABIC-INDIC DIGIT ZERO}0:bb:cc:dd:ee:ff",
    ],
)
def test_what_only_looks_like_a_mac_is_none(text: str) -> None:
    assert mac_addresses.normalized_mac(text) is None


def test_an_active_inspection_is_seen_as_one_and_a_resting_node_is_not() -> None:
    busy = {Provision.INSPECTING, Provision.INSPECT_WAIT}
    assert UNDER_WAY == ("inspecting", "inspect wait")
    assert {state for state, provision in OF_STATE.items() if provision in busy} == ACTIVE
    assert not busy & INSPECTABLE
    for moves in RESTING_VERBS.values():
        assert not busy & (set(moves) | set(moves.values()))


def test_every_reason_has_a_hint_and_every_hint_a_reason() -> None:
    assert set(HINTS) == set(Reason)


def test_a_code_is_fit_for_scripts() -> None:
    misses.none(
        reason for reason in Reason if not re.fullmatch(r"[a-z]+(-[a-z]+)*", reason) or hint(reason) != HINTS[reason]
    )


@each(("text", "meant"), [(" TRUE ", True), ("y", True), ("0", False), ("Off", False), ("", None)])
def test_words_for_true_and_false(text: str, meant: bool | None) -> None:
    assert values.parse(text) is meant

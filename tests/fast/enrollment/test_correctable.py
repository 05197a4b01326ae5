"""What was pasted comes back to be corrected, and no password with it."""

from __future__ import annotations

from ferroscope_client.enrollment.correctable import without_secrets
from tests.support.rows import each


@each("delimiter", [",", ";", "\t"])
def test_the_cells_of_passwords_are_emptied_and_references_stay(delimiter: str) -> None:
    rows = ["name,bmc_address,bmc_password", "a,192.0.2.1,hunter2", 'b,192.0.2.2,"hun""ter3"', "c,,secret://file/x"]
    found = without_secrets("\n".join(rows).replace(",", delimiter))
    expected = ["name,bmc_address,bmc_password", "a,192.0.2.1,", "b,192.0.2.2,", "c,,secret://file/x", ""]
    assert found == "\n".join(expected).replace(",", delimiter)


@each("column", ["bmc_pasword", "BMC_PW", "driver_info/redfish_password"])
def test_a_misspelt_column_is_one_too(column: str) -> None:
    header = f"name,{column},macs"
    found = without_secrets(f"{header}\na,hunter2,52:54:00:00:00:01\n")
    assert found == f"{header}\na,,52:54:00:00:00:01\n"


@each("row", ["a,x,hunter2,y", "a,hunter2"])
def test_a_row_in_which_the_password_may_be_anywhere_keeps_its_name(row: str) -> None:
    found = without_secrets(f"name,driver,bmc_password\n{row}\n")
    assert found is not None
    assert "hunter2" not in found
    assert "\na," in found


@each(
    "text",
    ["nodes:\n- name: a\n  driver_info: {redfish_password: hunter2}\n", '[{"bmc_password": "hunter2"}]',
     'name,bmc_password\na,"hunter2\n', "bmc_password,name\nhunter2,a\n"],
)  # fmt: skip
def test_what_cannot_be_distinguished_from_a_secret_is_not_given_back(text: str) -> None:
    assert without_secrets(text) is None


def test_a_text_without_secrets_comes_back_as_it_is() -> None:
    text = "nodes:\n- name: a\n  driver: sim\n"
    assert without_secrets(text) == text

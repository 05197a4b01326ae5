# shellcheck shell=bash
# PostgreSQL for private instances of the tests, and programs that pages of the documentation call.
if ! command -v postgres >/dev/null; then
    programs '/usr/lib/postgresql/*/bin/postgres:postgresql'
fi
programs jq:jq sqlite3:sqlite3

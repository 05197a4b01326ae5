# shellcheck shell=bash
# Chromium without a display, for the tests and the pictures of the web page.
if ! command -v chromium >/dev/null; then
    programs chromium-headless-shell:chromium-headless-shell
fi
programs '/usr/share/fonts/truetype/dejavu/*:fonts-dejavu-core'

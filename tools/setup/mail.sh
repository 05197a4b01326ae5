# shellcheck shell=bash
# aiosmtpd, a mail server
programs aiosmtpd:python3-aiosmtpd

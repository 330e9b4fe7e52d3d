# SPDX-License-Identifier: Apache-2.0
"""The values of `format` in JSON schemas as rules of GBNF: what RFC 3339 (dates, times and durations), RFC 2673 (IPv4),
RFC 4291 (IPv6, without IPv4 at its end), RFC 1123 (names of hosts), RFC 5321 (email, without quotation marks and IPv6)
and RFC 4122 (UUID) allow. The package llguidance allows the same."""

from __future__ import annotations

from ....errors import MegccError, quoted

_HEX = "[0-9a-fA-F]"
_GROUP = f"{_HEX}{{1,4}}"


def _before(groups: int) -> str:
    """Returns at most so many groups of an IPv6 address before its "::"."""
    return f'({_GROUP} (":" {_GROUP}){{0,{groups - 1}}})?' if groups else ""


_TO_59 = "[0-5] [0-9]"
_DATE = ('[0-9]{4} "-" (("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])'
         ' | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | [12] [0-9]))')
_HOUR = '([01] [0-9] | "2" [0-3])'
_TIME = (f'{_HOUR} ":" {_TO_59} ":" ({_TO_59} | "60") ("." [0-9]+)?'
         f' ([zZ] | [+-] {_HOUR} ":" {_TO_59})')
_BYTE = '("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9] [0-9] | [1-9]? [0-9])'

_LABEL = "[a-zA-Z0-9] ([a-zA-Z0-9-]{0,61} [a-zA-Z0-9])?"
_HOST = f'{_LABEL} ("." {_LABEL})*'
_SECONDS, _DAYS = '[0-9]+ "S"', '[0-9]+ "D"'
_MINUTES = f'[0-9]+ "M" ({_SECONDS})?'
_CLOCK = f'"T" ([0-9]+ "H" ({_MINUTES})? | {_MINUTES} | {_SECONDS})'
_MONTHS = f'[0-9]+ "M" ({_DAYS})?'
_DURATION = f'"P" (({_DAYS} | {_MONTHS} | [0-9]+ "Y" ({_MONTHS})?) ({_CLOCK})? | {_CLOCK} | [0-9]+ "W")'
_IPV4 = f'({_BYTE} "."){{3}} {_BYTE}'
_LAST = f'{_GROUP} ":" {_GROUP}'
#: Up to eight groups; "::" stands for one or more that are zero.
_IPV6 = " | ".join([
    f'({_GROUP} ":"){{6}} {_LAST}',
    *(f'{_before(groups)} "::" ({_GROUP} ":"){{{5 - groups}}} {_LAST}' for groups in range(6)),
    f'{_before(6)} "::" {_GROUP}', f'{_before(7)} "::"'])
_DOMAIN = '[a-zA-Z0-9] ([a-zA-Z0-9-]* [a-zA-Z0-9])? ("." [a-zA-Z0-9] ([a-zA-Z0-9-]* [a-zA-Z0-9])?)*'
_ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"

#: Format -> its strings, without quotation marks.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE} [tT] {_TIME}",
    "uuid": f'{_HEX}{{8}} ("-" {_HEX}{{4}}){{3}} "-" {_HEX}{{12}}',
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "duration": _DURATION,
    "hostname": _HOST,
    "email": f'{_ATOM} ("." {_ATOM})* "@" ({_DOMAIN} | "[" {_IPV4} "]")'}


def format_rule(name: object) -> str:
    """Returns the strings of a format, without quotation marks.

    Raises:
        MegccError: if it is not one of `FORMATS`.
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise MegccError(f"the format {quoted(name)} is not supported; {', '.join(FORMATS)} are")
    return FORMATS[name]

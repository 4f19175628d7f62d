"""RFC 3339 text to seconds since the epoch and back, by arithmetic alone.

Pure: nothing here reads a clock or a time zone database; the instant is always an argument. Days are counted in the
proleptic Gregorian calendar with the year starting in March, so that the leap day comes last (the era method of
E. G. Richards' and H. Hinnant's date algorithms).
"""

from __future__ import annotations

import re
from typing import Final

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(\.\d{1,9})?(?:[Zz]|([+-])(\d{2}):(\d{2}))"
)
_DAYS_IN_MONTH: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_PER_ERA: Final = 146_097  # 400 years
_EPOCH_DAY: Final = 719_468  # 1970-01-01 counted from 0000-03-01


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _DAYS_PER_ERA + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH_DAY


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970-01-01."""
    era, day_of_era = divmod(days + _EPOCH_DAY, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return era * 400 + year_of_era + (month <= 2), month, day


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def epoch_seconds(text: str) -> float | None:
    """Seconds since the epoch that an RFC 3339 text means; None when it is not one (no zone, 31 February, …)."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 60:
        return None
    if not 1 <= day <= _DAYS_IN_MONTH[month - 1] + (month == 2 and _leap(year)):
        return None
    offset = (int(match[9]) * 3600 + int(match[10]) * 60) * (-1 if match[8] == "-" else 1) if match[8] else 0
    fraction = float(match[7]) if match[7] else 0.0
    return _days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset + fraction


def rfc3339(at: float) -> str:
    """The instant as RFC 3339 in UTC, whole seconds (rounded down): ``2026-11-29T12:00:00Z``."""
    days, rest = divmod(int(at // 1), 86_400)
    year, month, day = _date(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}Z"

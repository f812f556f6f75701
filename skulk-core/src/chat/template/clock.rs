//! What time is it, as a template asks? In UTC, in English, by the clock that the caller gives.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

/// Seconds since 1970 among a rendering's variables; templates cannot spell it.
pub(super) const VARIABLE: &str = "the time";

const DAY: i64 = 86_400;
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Seconds since 1970 of `now`, or of the system's clock.
pub(super) fn seconds(now: Option<SystemTime>) -> i64 {
    let now = now.unwrap_or_else(SystemTime::now);
    let whole = |duration: std::time::Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match now.duration_since(UNIX_EPOCH) {
        Ok(after) => whole(after),
        Err(before) => -whole(before.duration()),
    }
}

/// A moment as the calendar has it.
struct Moment {
    year: i64,
    /// From 0.
    month: usize,
    day: i64,
    /// From 0.
    day_of_year: i64,
    /// From Sunday, 0.
    weekday: usize,
    /// Since midnight.
    second: i64,
    epoch: i64,
}

impl Moment {
    fn at(seconds: i64) -> Self {
        // Four thousand years either way are enough, and keep clear of overflow.
        let epoch = seconds.clamp(-4000 * 366 * DAY, 4000 * 366 * DAY);
        let (days, second) = (epoch.div_euclid(DAY), epoch.rem_euclid(DAY));
        // Years of the proleptic Gregorian calendar that begin in March, in eras of 400 (Hinnant, "chrono-Compatible
        // Low-Level Date Algorithms").
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = (march_month + 2) % 12;
        let year = era * 400 + year_of_era + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let january_first = if month < 2 { of_year - 306 } else { of_year + 59 + i64::from(leap) };
        Self {
            year,
            month: usize::try_from(month).unwrap_or(0),
            day,
            day_of_year: january_first,
            weekday: usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0),
            second,
            epoch,
        }
    }
}

/// The time as `format` says, in the words of C's `strftime`.
pub(super) fn strftime(seconds: i64, format: &str) -> Result<String, Error> {
    let now = Moment::at(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        let mut code = chars.next();
        // GNU's `%-d`: without padding.
        let bare = code == Some('-');
        if bare {
            code = chars.next();
        }
        write(&now, code, bare, &mut out)?;
    }
    Ok(out)
}

fn write(now: &Moment, code: Option<char>, bare: bool, out: &mut String) -> Result<(), Error> {
    let Moment { year, month, day, second, .. } = *now;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut padded = |value: i64, width: usize, fill: char| {
        let width = if bare { 0 } else { width };
        let _ = if fill == '0' { write!(out, "{value:0width$}") } else { write!(out, "{value:width$}") };
    };
    match code {
        Some('Y') => padded(year, 4, '0'),
        Some('C') => padded(year.div_euclid(100), 2, '0'),
        Some('y') => padded(year.rem_euclid(100), 2, '0'),
        Some('m') => padded(month as i64 + 1, 2, '0'),
        Some('d') => padded(day, 2, '0'),
        Some('e') => padded(day, 2, ' '),
        Some('j') => padded(now.day_of_year + 1, 3, '0'),
        Some('H') => padded(hour, 2, '0'),
        Some('k') => padded(hour, 2, ' '),
        Some('I') => padded(half, 2, '0'),
        Some('l') => padded(half, 2, ' '),
        Some('M') => padded(minute, 2, '0'),
        Some('S') => padded(second % 60, 2, '0'),
        Some('f') => out.push_str("000000"),
        Some('s') => padded(now.epoch, 0, '0'),
        Some('u') => padded((now.weekday as i64 + 6) % 7 + 1, 1, '0'),
        Some('w') => padded(now.weekday as i64, 1, '0'),
        Some('A') => out.push_str(DAYS[now.weekday]),
        Some('a') => out.push_str(&DAYS[now.weekday][..3]),
        Some('B') => out.push_str(MONTHS[month]),
        Some('b' | 'h') => out.push_str(&MONTHS[month][..3]),
        Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
        Some('P') => out.push_str(if hour < 12 { "am" } else { "pm" }),
        // transformers' time has no zone.
        Some('Z' | 'z') => {}
        Some('%') => out.push('%'),
        Some('n') => out.push('\n'),
        Some('t') => out.push('\t'),
        Some('F') => out.push_str(&strftime(now.epoch, "%Y-%m-%d")?),
        Some('T' | 'X') => out.push_str(&strftime(now.epoch, "%H:%M:%S")?),
        Some('R') => out.push_str(&strftime(now.epoch, "%H:%M")?),
        Some('D' | 'x') => out.push_str(&strftime(now.epoch, "%m/%d/%y")?),
        Some('r') => out.push_str(&strftime(now.epoch, "%I:%M:%S %p")?),
        Some('c') => out.push_str(&strftime(now.epoch, "%a %b %e %H:%M:%S %Y")?),
        other => {
            let code = other.map_or_else(String::new, String::from);
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now does not know %{code}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are by GNU date, `date -u -d @… +…`.
    #[test]
    fn moments_are_as_the_calendar_has_them() {
        let all = "%Y-%m-%d %H:%M:%S %j %a %A %b %B %I %p %y %u %w %e|%-d|%-m|%-I|%F %T";
        for (seconds, expected) in [
            (
                1_795_339_815,
                "2026-11-22 09:30:15 326 Sun Sunday Nov November 09 AM 26 7 0 22|22|11|9|2026-11-22 09:30:15",
            ),
            (
                951_782_400,
                "2000-02-29 00:00:00 060 Tue Tuesday Feb February 12 AM 00 2 2 29|29|2|12|2000-02-29 00:00:00",
            ),
            (
                -1,
                "1969-12-31 23:59:59 365 Wed Wednesday Dec December 11 PM 69 3 3 31|31|12|11|1969-12-31 23:59:59",
            ),
            (
                4_107_542_399,
                "2100-02-28 23:59:59 059 Sun Sunday Feb February 11 PM 00 7 0 28|28|2|11|2100-02-28 23:59:59",
            ),
            (
                1_735_689_600,
                "2025-01-01 00:00:00 001 Wed Wednesday Jan January 12 AM 25 3 3  1|1|1|12|2025-01-01 00:00:00",
            ),
        ] {
            assert_eq!(strftime(seconds, all).unwrap(), expected);
        }
        assert_eq!(strftime(0, "%H:%M%z %Z").unwrap(), "00:00 ");
        assert!(strftime(0, "%Q").is_err() && strftime(0, "%").is_err() && strftime(0, "%-").is_err());
        for seconds in [i64::MIN, i64::MAX] {
            assert!(strftime(seconds, "%c %x %X %r %R %D %z %Z %s %k %l %P %C %h %f%%%n%t").is_ok());
        }
    }
}

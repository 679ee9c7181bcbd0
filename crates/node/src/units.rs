//! Sizes and durations as people write them. Sizes are bytes inside, durations `std::time::Duration`.
//!
//! `K`, `M`, `G`, `T` and `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; `KB`, `MB`, `GB`, `TB` are powers of 1000.
/// A count for people: thousands separated by commas.
pub use forebay_trace::plot::axis::count;
pub use forebay_trace::plot::axis::counted;
use std::time::Duration;

/// Reads a size: a number, perhaps with a fraction, and perhaps a unit.
///
/// # Errors
/// A sentence that shows how sizes are written.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write it like 4096, 64MiB or 1G");
    let (number, unit) = split(text);
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(scale)
            .ok_or_else(|| format!("'{text}' is too large; a size is below 16 EiB"));
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * scale as f64;
    if !bytes.is_finite() || !(0.0..1.8e19).contains(&bytes) {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// Reads a duration: `500ms`, `10s`, `2m`, `1h`; a bare number is seconds.
///
/// # Errors
/// A sentence that shows how durations are written.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration; write it like 500ms, 10s or 2m");
    let (number, unit) = split(text);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let value: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(value * scale).map_err(|_| wrong())
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// A size for people: `0 B`, `47.0 KiB`, `1.0 GiB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 && unit == "B" {
            return format!("{bytes} B");
        }
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

/// A rate for people: `512.3 MiB/s`.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!(
        "{}/s",
        size((bytes as f64 / time.as_secs_f64().max(1e-9)) as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("1G", 1 << 30),
            ("1.5K", 1536),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "-1", "1Q", "1..2M", "99999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("soon").is_err());
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(counted(0, "member"), "0 members");
        assert_eq!(counted(1, "member"), "1 member");
        assert_eq!(counted(1234, "file"), "1,234 files");
    }

    #[test]
    fn numbers_are_printed_for_people() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(47_008), "45.9 KiB");
        assert_eq!(size(1 << 30), "1.0 GiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(rate(1 << 20, Duration::from_secs(1)), "1.0 MiB/s");
    }
}

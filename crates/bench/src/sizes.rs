//! Sizes as people write them.

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// `64KiB` -> 65536; a plain number is bytes.
///
/// # Errors
/// Says what a size looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(u, n)| Some((text.strip_suffix(u)?, *n)))
        .unwrap_or((text, 1));
    let bad = || format!("'{text}' is not a size; write one like 256MiB");
    let n: u64 = digits.trim().parse().map_err(|_| bad())?;
    n.checked_mul(unit).filter(|n| *n > 0).ok_or_else(bad)
}

/// 65536.0 -> `64.0 KiB`.
pub fn show(bytes: f64) -> String {
    match UNITS.iter().find(|(_, n)| bytes >= *n as f64) {
        Some((unit, n)) => format!("{:.1} {unit}", bytes / *n as f64),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_read_and_show() {
        assert_eq!(super::parse("256MiB"), Ok(256 << 20));
        assert_eq!(super::parse("47008"), Ok(47008));
        assert!(
            super::parse("0").is_err()
                && super::parse("12parsecs").is_err()
                && super::parse("-1").is_err()
        );
        assert_eq!(super::show(1.5 * 1024.0 * 1024.0), "1.5 MiB");
    }
}

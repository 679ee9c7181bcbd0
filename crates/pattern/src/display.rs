//! Patterns for people: `at 0: 256 Ki x 4 KiB stride 2 MiB`.

use crate::global::SlotStarts;
use crate::shape::{Arena, Shape, ShapeKind};
use crate::{GlobalPattern, Pattern};
use std::fmt;

/// A number of bytes or things in the largest unit of 1024s that it is a multiple of.
struct Size(u64, &'static str);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
        let mut unit = 0;
        let mut value = self.0;
        while value >= 1024 && value.is_multiple_of(1024) && unit + 1 < units.len() {
            value /= 1024;
            unit += 1;
        }
        let suffix = format!("{}{}", units[unit], self.1);
        if suffix.is_empty() {
            write!(f, "{value}")
        } else {
            write!(f, "{value} {suffix}")
        }
    }
}

fn signed(value: i64) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", Size(value.unsigned_abs(), "B"))
}

fn shape(f: &mut fmt::Formatter<'_>, arena: &Arena, of: Shape) -> fmt::Result {
    let ShapeKind::Loop(id) = of.kind() else {
        return write!(f, "{}", Size(arena.bytes(of), "B"));
    };
    let l = arena.get(id);
    let (full, tail) = (l.steps.elements / l.per, l.steps.elements % l.per);
    write!(f, "{}", Size(full, ""))?;
    if tail > 0 {
        write!(f, " and {tail}/{}", l.per)?;
    }
    write!(f, " x ")?;
    match arena.body(l) {
        [item] if matches!(item.shape.kind(), ShapeKind::Leaf(_)) => shape(f, arena, item.shape)?,
        body => {
            write!(f, "[")?;
            for (i, item) in body.iter().enumerate() {
                if i > 0 {
                    write!(f, ", at {}: ", signed(item.rel))?;
                }
                shape(f, arena, item.shape)?;
            }
            write!(f, "]")?;
        }
    }
    write!(f, " stride {}", signed(l.steps.stride))
}

/// One line a term.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "at {}: ", Size(term.start, "B"))?;
            shape(f, &self.arena, term.shape)?;
        }
        Ok(())
    }
}

/// `at 0 B: 512 x [256 Ki x 4 KiB stride 2 MiB] stride 4 KiB`.
impl fmt::Display for GlobalPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: ", Size(self.start, "B"))?;
        let mut ends = Vec::new();
        match self.places() {
            SlotStarts::Even(dims) => {
                for (stride, count) in dims {
                    write!(f, "{} x [", Size(count, ""))?;
                    ends.push(format!("] stride {}", Size(stride, "B")));
                }
            }
            SlotStarts::Table(starts) => {
                write!(f, "{} x [", Size(starts.len() as u64, ""))?;
                ends.push("] at uneven distances".to_owned());
            }
        }
        shape(f, &self.arena, self.shape)?;
        ends.iter().rev().try_for_each(|end| write!(f, "{end}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Folder, LogSource, Patterns, Segment};

    #[test]
    fn patterns_are_shown_readably() {
        let mut segments = Vec::new();
        for rank in 0..512 {
            let mut folder = Folder::joining();
            for k in 0..1024 {
                folder.push((k * 512 + rank) * 4096, 4096).unwrap();
            }
            let source = LogSource {
                member: 0,
                log: rank,
            };
            segments.push(Segment::new(source, 1, folder.finish().remove(0)));
        }
        let one = segments[1].pattern.to_string();
        assert_eq!(one, "at 4 KiB: 1 Ki x 4 KiB stride 2 MiB");
        let merged = Patterns::merged(segments);
        assert_eq!(merged.sources().len(), 512);
        let bytes: Vec<u64> = merged.globals.iter().map(|g| g.bytes()).collect();
        assert_eq!(bytes, [512 * 1024 * 4096]);
        let all = merged.globals[0].to_string();
        assert_eq!(
            all,
            "at 0 B: 512 x [1 Ki x 4 KiB stride 2 MiB] stride 4 KiB"
        );
    }

    #[test]
    fn terms_are_shown_alone() {
        let mut folder = Folder::joining();
        let extents = [(1000, 10), (0, 7), (100, 7), (200, 7), (300, 7)];
        for (offset, len) in extents {
            folder.push(offset, len).unwrap();
        }
        let all = folder.finish().remove(0);
        let alone: Vec<_> = all
            .each_term()
            .map(|t| (t.to_string(), t.bytes()))
            .collect();
        let want = [
            ("at 1000 B: 10 B", 10),
            ("at 0 B: 4 x 7 B stride 100 B", 28),
        ];
        assert_eq!(alone, want.map(|(text, bytes)| (text.to_owned(), bytes)));
    }
}

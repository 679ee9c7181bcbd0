//! The segment files of one member: headers, files that nothing names, ranges that two spans or containers claim.
use super::{CheckedStore, FsckReport, stored_range::StoredRange};
use crate::Result;
use crate::superblock::refused_at;
use forebay_data::{ANCHORS_FILE, INDEX_FILE, segment_header};
use forebay_storage::Io;
use std::collections::HashSet;

/// `places`: sorted.
pub fn check(
    io: &dyn Io,
    m: &CheckedStore,
    places: &[StoredRange],
    report: &mut FsckReport,
) -> Result<()> {
    let used: HashSet<u32> = places.iter().map(|p| p.segment).collect();
    let entries = match io.list(&m.data) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(refused_at(&m.data, &e, "check the disk")),
    };
    let mut unused = 0;
    for entry in entries {
        let path = m.data.join(&entry.name);
        if [INDEX_FILE, ANCHORS_FILE].contains(&entry.name.as_str()) {
            // Hints, which a start checks.
            continue;
        }
        let Some(number) = segment_header::number(&entry.name) else {
            report
                .notes
                .push(format!("{}: no file of Forebay's", path.display()));
            continue;
        };
        report.segments += 1;
        if !used.contains(&number) {
            unused += 1;
            continue;
        }
        let header = io.open(&path).map_err(|e| e.to_string()).and_then(|file| {
            segment_header::check_header(&*file, &path, m.member, number).map_err(|e| e.to_string())
        });
        if let Err(e) = header {
            report.problem("segments", e);
        }
    }
    if unused > 0 {
        report.notes.push(format!(
            "member {}: {unused} segment files without live bytes; the next start removes them",
            m.member
        ));
    }
    // Two parts of one span may both hold the piece between them; anything else has its bytes for itself.
    let mut before: Option<&StoredRange> = None;
    for place in places {
        if let Some(b) = before.filter(|b| b.segment == place.segment && b.end > place.start) {
            let same_bytes = b.owner == place.owner
                && place.position.wrapping_sub(place.start) == b.position.wrapping_sub(b.start);
            if !same_bytes {
                report.problem(
                    "segments",
                    format!(
                        "member {}: segment {:08x} byte {} belongs to {} and to {}",
                        m.member, place.segment, place.start, b.owner, place.owner,
                    ),
                );
            }
        }
        before = match before {
            Some(b) if b.segment == place.segment && b.end > place.end => Some(b),
            _ => Some(place),
        };
    }
    Ok(())
}

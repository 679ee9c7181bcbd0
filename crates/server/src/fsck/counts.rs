//! Checks the saved counts of one member's chunks against the number of runs of spans and bases that name them, and that each container
//! with a base holds it.
use super::{CheckedStore, FsckReport};
use crate::Result;
use forebay_data::{check, container};

/// Wrong counts told one by one; the others are a number.
const MAX_LISTED_MISMATCHES: u64 = 16;

/// Counts all chunks anew.
pub fn check(m: &CheckedStore, report: &mut FsckReport) -> Result<()> {
    for hold in container::needed_holds(&m.store).filter(|hold| hold.is_wrong) {
        report.problem(
            "counts",
            format!(
                "member {}: container {} is encoded against others, and the record that keeps them is missing or wrong; `forebay fsck --repair` makes it anew",
                m.member, hold.id
            ),
        );
    }
    let mut wrong = 0u64;
    check::recount(&m.store, |recount| {
        let id = recount.container.id;
        let text = match &recount.saved {
            Err(e) => format!("container {id}: {e}"),
            Ok(saved) => {
                let pairs = saved.0.iter().zip(&recount.counted.0);
                match pairs
                    .enumerate()
                    .find(|(_, (saved, counted))| saved != counted)
                {
                    None => return Ok(()),
                    Some((i, (saved, counted))) => format!(
                        "container {id} chunk {i}: spans and bases name it {counted} times, its count is {saved}"
                    ),
                }
            }
        };
        wrong += 1;
        if wrong <= MAX_LISTED_MISMATCHES {
            report.problem(
                "counts",
                format!(
                    "member {}: {text}; `forebay fsck --repair` makes counts anew",
                    m.member
                ),
            );
        }
        Ok(())
    })?;
    if let Some(others) = wrong.checked_sub(MAX_LISTED_MISMATCHES).filter(|n| *n > 0) {
        report.problem(
            "counts",
            format!(
                "member {}: {others} more containers have wrong counts",
                m.member
            ),
        );
    }
    Ok(())
}

//! Which member owns which slice of a file. Pure arithmetic: every member computes the same answer.

use crate::SLICE;

/// Which member owns which slice of a file: slice 0 the attribute owner, then round robin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeMap {
    /// Number of members in the service, at least 1.
    pub members: u16,
}

impl RangeMap {
    /// The member that owns the extents of `offset` of a file whose attributes live at `owner`.
    pub fn member(&self, owner: u16, offset: u64) -> u16 {
        let members = u64::from(self.members.max(1));
        // Less than `members`, so it fits 16 bits.
        ((u64::from(owner) + offset / SLICE) % members) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_go_round_from_the_owner() {
        let map = RangeMap { members: 4 };
        assert_eq!(map.member(2, 0), 2);
        assert_eq!(map.member(2, SLICE - 1), 2);
        assert_eq!(map.member(2, SLICE), 3);
        assert_eq!(map.member(2, 2 * SLICE), 0);
        assert!(map.member(3, u64::MAX) < 4);
    }
}

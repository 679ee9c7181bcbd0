//! Where things are: which rank a member runs at.
use crate::Member;
use forebay_fabric::Rank;

/// The rank at which a member runs: a service starts its members in order.
pub fn rank_of(member: Member) -> Rank {
    Rank::from(member)
}

/// The member that runs at a rank. A service has fewer members than numbers of 16 bits.
pub fn member_at(rank: Rank) -> Member {
    rank as Member
}

//! One thing that a check of a stopped service found (`forebay fsck`): in the namespace (`meta/check`) or in the content of
//! files (`files/check`).

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// False for what the next start finishes by itself.
    pub is_damage: bool,
    /// Which member, file or name, and what is wrong.
    pub text: String,
}

impl Finding {
    /// What no crash may leave.
    pub(crate) fn damage(text: impl ToString) -> Finding {
        Finding {
            is_damage: true,
            text: text.to_string(),
        }
    }

    /// What a crash may leave.
    pub(crate) fn note(text: impl ToString) -> Finding {
        Finding {
            is_damage: false,
            text: text.to_string(),
        }
    }
}

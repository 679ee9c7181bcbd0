//! Macro for statistics that are merged over members: each field names its merge function.

/// A struct of statistics, each with the function that merges those of two members.
macro_rules! stats {
    ($(#[$meta:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $kind:ty = $merge:expr,)* }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$about])* pub $field: $kind,)*
        }

        impl $name {
            /// The statistics of both together.
            #[must_use]
            pub fn and(self, other: $name) -> $name {
                $name { $($field: $merge(self.$field, other.$field),)* }
            }
        }
    };
}
pub(crate) use stats;

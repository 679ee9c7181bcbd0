//! Structs of figures that are summed over members: each field names how two of them become one.

/// A struct of figures, each with the function that makes one of those of two members.
macro_rules! figures {
    ($(#[$meta:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $kind:ty = $both:expr,)* }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$about])* pub $field: $kind,)*
        }

        impl $name {
            /// The figures of both together.
            #[must_use]
            pub fn and(self, other: $name) -> $name {
                $name { $($field: $both(self.$field, other.$field),)* }
            }
        }
    };
}
pub(crate) use figures;

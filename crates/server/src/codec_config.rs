//! How files are encoded: settings of the codecs.
use crate::codec_names::CodecNames;
use std::sync::Arc;

pub use forebay_data::CodecWhen;

/// Settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodecConfig {
    /// When.
    pub when: CodecWhen,
    /// Hints for files of which nobody says anything.
    pub names: Arc<CodecNames>,
}

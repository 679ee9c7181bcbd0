//! How files are encoded: settings of the codecs.
use crate::codec_names::CodecNames;
use std::sync::Arc;

/// When bytes are encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CodecWhen {
    /// When they are written out, where the disk is slower than the codec; else when they settle.
    Auto,
    /// When they are written out.
    Inline,
    /// When they settle.
    Settle,
    /// Never.
    #[default]
    Off,
}

/// Settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodecConfig {
    /// When.
    pub when: CodecWhen,
    /// Hints for files of which nobody says anything.
    pub names: Arc<CodecNames>,
}

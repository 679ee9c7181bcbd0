//! How the text of a setting becomes its value. A text that is none is refused with how to write it.
use forebay_node::settings::Settings;
use forebay_node::units::{parse_duration, parse_size};
use forebay_pattern::ReadRequest;
use forebay_server::delegate::KnownReads;
use forebay_trace::{Kind, NO_OFFSET};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A time that is not nothing.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!(
            "'{text}' is no time at all; write it like 500ms or 10s"
        )),
        time => Ok(time),
    }
}

/// A budget; `None` for the usual share of the memory.
pub(super) fn budget(text: &str) -> Result<Option<u64>, String> {
    match text {
        "auto" => Ok(None),
        _ => parse_size(text).map(Some),
    }
}

/// The reads of each rank in each file of a trace.
pub(super) fn future(text: &str) -> Result<Option<Arc<KnownReads>>, String> {
    if text == "none" {
        return Ok(None);
    }
    let path = Path::new(text);
    if !path.is_absolute() {
        // Servers read it too, and may run in another directory.
        return Err(format!(
            "'{text}' is no name from the root; write one that begins with /"
        ));
    }
    let trace = forebay_trace::load(path).map_err(|e| e.to_string())?;
    let mut readers: BTreeMap<(u32, u32), Vec<ReadRequest>> = BTreeMap::new();
    for op in &trace.ops {
        if op.kind == Kind::Read && op.offset != NO_OFFSET && op.len > 0 {
            let (offset, len) = (op.offset, op.len);
            let reader = readers.entry((op.file, op.rank)).or_default();
            reader.push(ReadRequest { offset, len });
        }
    }
    Ok(Some(Arc::new(KnownReads::new(readers.into_values()))))
}

/// What is wrong with the index's setting that was just given, if anything is.
pub(super) fn index(settings: &Settings) -> Result<(), String> {
    settings.service.index.check().map_err(|(_, text)| text)
}

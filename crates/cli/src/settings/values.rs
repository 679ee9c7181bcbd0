//! Parsers of settings: the text of a setting becomes its value. Invalid text is refused, with the form that is expected.
use forebay_node::units::{parse_duration, parse_size};
use forebay_pattern::ReadRequest;
use forebay_server::delegate::FutureReads;
use forebay_server::{
    Alpha, ChunkSize, CodecNames, CodecNamesError, CodecWhen, Consistency, FingerprintKind,
};
use forebay_storage::Durability;
use forebay_trace::{Kind, NO_OFFSET};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
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
pub(super) fn future(text: &str) -> Result<Option<Arc<FutureReads>>, String> {
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
    Ok(Some(Arc::new(FutureReads::new(readers.into_values()))))
}

/// The number of node servers.
pub(super) fn nodes(text: &str) -> Result<u16, String> {
    let nodes = text.parse().ok().filter(|n| (1..=64).contains(n));
    nodes.ok_or_else(|| format!("'{text}' is not a number of nodes; write a number from 1 to 64"))
}

/// The value of one of these words; `wrong` says what another word is not, and how to write it.
fn one_of<T: Copy>(text: &str, words: &[(&str, T)], wrong: &str) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("'{text}' {wrong}"))
}

pub(super) fn durability(text: &str) -> Result<Durability, String> {
    let words = [
        ("none", Durability::None),
        ("process", Durability::Process),
        ("disk", Durability::Disk),
    ];
    let wrong = "is not a durability level; write none, process or disk";
    one_of(text, &words, wrong)
}

pub(super) fn consistency(text: &str) -> Result<Consistency, String> {
    let words = [
        ("commit", Consistency::Commit),
        ("posix", Consistency::Posix),
    ];
    let wrong = "is not a consistency mode; write commit or posix";
    one_of(text, &words, wrong)
}

/// Whether what is written is settled.
pub(super) fn settle(text: &str) -> Result<bool, String> {
    let wrong = "is neither; write auto or off";
    one_of(text, &[("auto", true), ("off", false)], wrong)
}

pub(super) fn chunk_size(text: &str) -> Result<ChunkSize, String> {
    let size = u32::try_from(parse_size(text)?)
        .ok()
        .and_then(ChunkSize::new);
    size.ok_or_else(|| {
        format!("'{text}' is no size of chunks; write 4KiB, 8KiB, 16KiB, 32KiB or 64KiB")
    })
}

pub(super) fn fingerprint(text: &str) -> Result<FingerprintKind, String> {
    let words = [
        ("blake3", FingerprintKind::Blake3),
        ("sha1", FingerprintKind::Sha1),
    ];
    one_of(text, &words, "is no such hash; write blake3 or sha1")
}

/// When file data is encoded.
pub(super) fn codec_when(text: &str) -> Result<CodecWhen, String> {
    let words = [
        ("auto", CodecWhen::Auto),
        ("inline", CodecWhen::Inline),
        ("settle", CodecWhen::Settle),
        ("off", CodecWhen::Off),
    ];
    let wrong = "says not when to encode; write auto, inline, settle or off";
    one_of(text, &words, wrong)
}

/// Codecs of files by name.
pub(super) fn codec_names(text: &str) -> Result<Arc<CodecNames>, String> {
    match text {
        "none" => Ok(Arc::default()),
        _ => text
            .parse()
            .map(Arc::new)
            .map_err(|e: CodecNamesError| e.to_string()),
    }
}

pub(super) fn on_off(text: &str) -> Result<bool, String> {
    let wrong = "is neither; write on or off";
    one_of(text, &[("on", true), ("off", false)], wrong)
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    let wrong = "is not a switch; write true or false";
    one_of(text, &[("true", true), ("false", false)], wrong)
}

/// Most bytes of file data; `None` for no quota.
pub(super) fn quota(text: &str) -> Result<Option<u64>, String> {
    match text {
        "none" => Ok(None),
        _ => match parse_size(text)? {
            0 => Err(format!(
                "'{text}' leaves no room for any file; write a size such as 10G, or none for no quota"
            )),
            bytes => Ok(Some(bytes)),
        },
    }
}

/// The memory of a node, bytes.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < 16 << 20 => Err(format!(
            "'{text}' is too little memory; give each node at least 16MiB"
        )),
        bytes => Ok(bytes),
    }
}

/// The locality factor of reads of the index.
pub(super) fn alpha(text: &str) -> Result<Alpha, String> {
    let alpha = text.parse().ok().and_then(Alpha::new);
    alpha.ok_or_else(|| {
        format!("'{text}' is no locality factor; write a number above 0 and at most 1, such as 0.8")
    })
}

fn number<T: FromStr>(text: &str, wrong: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' {wrong}"))
}

pub(super) fn table_blocks<T: FromStr>(text: &str) -> Result<T, String> {
    number(text, "is no number of blocks; write one such as 256")
}

pub(super) fn prefetch_depth<T: FromStr>(text: &str) -> Result<T, String> {
    number(text, "is no number of requests; write 1 to 4096")
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    match text.parse::<tracing_subscriber::filter::Targets>() {
        Ok(_) => Ok(text.to_string()),
        Err(e) => Err(format!(
            "'{text}' is not a log filter ({e}); write a level such as info"
        )),
    }
}

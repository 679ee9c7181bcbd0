//! The arguments of `forebay dedup`.
use clap::{Args, ValueHint};
use forebay_data::chunk::{ChunkSize, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES};
use forebay_node::units::parse_size;
use std::path::PathBuf;

/// Arguments of `dedup`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads every file once and changes nothing. Directories are read with all below them; symbolic links are not \
        followed, and a file with several names counts once.\n\n\
        Fixed: chunks end at multiples of their size in each file. Anchored: the grid of chunks moves with content that was seen \
        before, so the same data behind a header of another length is found; a store cuts like this. Zero: chunks of zeros, which a \
        store keeps as holes. Duplicate: chunks that were seen before, in this path or in one before it. Stored: all others.\n\n\
        Besides --memory it takes up to 64 MiB. If the fingerprints of all chunks do not fit, a part of them is kept and the numbers are \
        estimates, marked `~`. Exit codes: 0 done, 1 some files could not be read, 2 wrong usage."
)]
pub struct DedupArgs {
    /// Files and directories
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Size of chunks: 4KiB, 8KiB, 16KiB, 32KiB or 64KiB; may be given several times [default: all of them]
    #[arg(long = "chunk", value_name = "SIZE", value_parser = parse_chunk_size)]
    pub chunks: Vec<ChunkSize>,
    /// Memory for the fingerprints of chunks
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    pub memory: u64,
    /// Draw the totals as bars into this file, an SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

fn parse_chunk_size(text: &str) -> Result<ChunkSize, String> {
    let bytes = parse_size(text)?;
    let known = u32::try_from(bytes).ok().and_then(ChunkSize::new);
    known.ok_or_else(|| {
        let (least, most) = (MIN_CHUNK_BYTES >> 10, MAX_CHUNK_BYTES >> 10);
        format!(
            "'{text}' is no size of chunks; they are powers of two from {least} KiB to {most} KiB"
        )
    })
}

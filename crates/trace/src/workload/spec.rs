//! Workloads by name, for the command line: `ior-strided:ranks=16,size=47008,calls=100`.
//!
//! Every workload takes `write` (0 or 1) and `readers` as well. Numbers may end in `k`, `m` or `g` (powers of 1024).

use super::ior::Ior;
use super::milc::{Milc, MilcLayout};
use super::nested::Nested;
use super::pagoda::Pagoda;
use super::random::Random;
use super::tile::Tile;
use super::{Btio, Layout, Workload};
use crate::{Error, Result};

/// The names, and what each is.
pub const KINDS: &[(&str, &str)] = &[
    ("ior-strided", "IOR N-1 fixed stride: ranks, calls, size"),
    (
        "ior-segmented",
        "IOR N-1, a block of each rank per segment: ranks, segments, calls (in a block), size",
    ),
    ("ior-n-n", "IOR N-N, a file per rank: ranks, calls, size"),
    ("tile", "MPI-Tile-IO: x, y (tiles), width, height, element"),
    ("btio", "NAS BTIO: q (ranks = q*q), grid, dumps"),
    ("fs-test", "FS-TEST N-1 strided: ranks, calls, size"),
    (
        "fs-test-segmented",
        "FS-TEST N-1 segmented: ranks, calls, size",
    ),
    ("fs-test-n-n", "FS-TEST N-N: ranks, calls, size"),
    (
        "milc-a",
        "MILC in lattice order, 2-d strided: x, y (ranks), lx, ly, lz, lt (sites), site",
    ),
    (
        "milc-b",
        "MILC, a contiguous part per rank: as milc-a, buffer",
    ),
    ("milc-c", "MILC, headers then parts: as milc-b, header"),
    (
        "nested-2d",
        "two levels of strides: ranks, size, inner, middle, gap",
    ),
    (
        "nested-3d",
        "three levels of strides: ranks, size, inner, middle, outer, gap",
    ),
    (
        "pagoda",
        "like Pagoda, a stride of its own for each variable of a time step: ranks, steps",
    ),
    (
        "random",
        "every block once in random order: ranks, calls, size, seed",
    ),
    (
        "random-overlap",
        "any length up to size, anywhere: ranks, calls, size, seed",
    ),
];

/// The workload that `spec` describes.
///
/// # Errors
/// `Spec`, saying which name or value is wrong and which there are.
pub fn parse(spec: &str) -> Result<Workload> {
    let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let mut values = Values {
        spec,
        known: Vec::new(),
        given: Vec::new(),
    };
    for pair in rest.split(',').filter(|p| !p.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| values.error(format!("{pair:?} is not key=value")))?;
        let number =
            size(value).ok_or_else(|| values.error(format!("{key}={value}: not a number")))?;
        values.given.push((key.to_owned(), number));
    }
    let layout = layout(name, &mut values)?;
    let write = values.take("write", 1)? != 0;
    let readers = values.rank_count("readers", layout.ranks(), 0)?;
    if let Some((key, _)) = values.given.first() {
        return Err(values.error(format!(
            "no parameter {key:?} here; there are: {}",
            values.known.join(", ")
        )));
    }
    Ok(Workload {
        name: name.to_owned(),
        layout,
        write,
        readers,
    })
}

fn layout(name: &str, v: &mut Values<'_>) -> Result<Box<dyn Layout>> {
    Ok(match name {
        "ior-strided" | "ior-segmented" | "ior-n-n" | "fs-test" | "fs-test-segmented"
        | "fs-test-n-n" => {
            // The odd size is that of the papers.
            let (family, calls, size) = match name.starts_with("ior") {
                true => ("ior", 64, 47_008),
                false => ("fs-test", 256, 4096),
            };
            let ranks = v.rank_count("ranks", 16, 1)?;
            let (segments, transfers) = match name {
                "ior-segmented" => (v.positive("segments", 4)?, v.positive("calls", 16)?),
                "fs-test-segmented" => (1, v.positive("calls", calls)?),
                _ => (v.positive("calls", calls)?, 1),
            };
            Box::new(Ior {
                name: family,
                ranks,
                segments,
                transfers,
                transfer: v.positive("size", size)?,
                file_per_rank: name.ends_with("-n-n"),
            })
        }
        // MetaKV's 16 tiles along y with rows of 4,096 bytes; 64 rows, not 32,768.
        "tile" => Box::new(Tile {
            tiles_x: v.rank_count("x", 1, 1)?,
            tiles_y: v.rank_count("y", 16, 1)?,
            width: v.positive("width", 4096)?,
            height: v.positive("height", 64)?,
            element: v.positive("element", 1)?,
        }),
        // Class W.
        "btio" => {
            let (q, grid) = (v.rank_count("q", 4, 1)?, v.positive("grid", 24)?);
            if grid < u64::from(q) {
                return Err(v.error(format!("grid={grid} is smaller than q={q}")));
            }
            let dumps = v.positive("dumps", 2)?;
            Box::new(Btio { q, grid, dumps })
        }
        "milc-a" | "milc-b" | "milc-c" => Box::new(milc(name, v)?),
        "nested-2d" | "nested-3d" => {
            let mut counts = vec![v.positive("inner", 16)?, v.positive("middle", 8)?];
            if name == "nested-3d" {
                counts.push(v.positive("outer", 4)?);
            }
            Box::new(Nested {
                ranks: v.rank_count("ranks", 16, 1)?,
                len: v.positive("size", 4096)?,
                counts,
                gap: v.take("gap", 64 << 10)?,
            })
        }
        "pagoda" => Box::new(Pagoda {
            ranks: v.rank_count("ranks", 4, 1)?,
            steps: v.positive("steps", 12)?,
        }),
        "random" | "random-overlap" => Box::new(Random {
            ranks: v.rank_count("ranks", 16, 1)?,
            calls: v.positive("calls", 64)?,
            len: v.positive("size", 4096)?,
            overlap: name == "random-overlap",
            seed: v.take("seed", 1)?,
        }),
        _ => {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            return Err(v.error(format!("no such workload; there are: {}", names.join(", "))));
        }
    })
}

fn milc(name: &str, v: &mut Values<'_>) -> Result<Milc> {
    let (grid_x, grid_y) = (v.rank_count("x", 4, 1)?, v.rank_count("y", 4, 1)?);
    let (lx, ly) = (v.positive("lx", 4)?, v.positive("ly", 4)?);
    let (lz, lt) = (v.positive("lz", 4)?, v.positive("lt", 8)?);
    let site = v.positive("site", 288)?;
    let buffer = |v: &mut Values<'_>| v.positive("buffer", 64 << 10);
    let layout = match name {
        "milc-a" => MilcLayout::Serial,
        "milc-b" => MilcLayout::Contiguous { buffer: buffer(v)? },
        _ => MilcLayout::Headed {
            buffer: buffer(v)?,
            header: v.positive("header", 96)?,
        },
    };
    Ok(Milc {
        grid_x,
        grid_y,
        local: [lx, ly, lz, lt],
        site,
        layout,
    })
}

struct Values<'a> {
    spec: &'a str,
    known: Vec<&'static str>,
    given: Vec<(String, u64)>,
}

impl Values<'_> {
    fn error(&self, reason: String) -> Error {
        Error::Spec {
            spec: self.spec.to_owned(),
            reason,
        }
    }

    fn take(&mut self, key: &'static str, default: u64) -> Result<u64> {
        self.known.push(key);
        let place = self.given.iter().position(|(k, _)| k == key);
        let value = place.map_or(default, |i| self.given.remove(i).1);
        // Products of a few such numbers stay far below 2^64 for every size that a disk may hold.
        if value > 1 << 40 {
            return Err(self.error(format!("{key}={value} is too large; at most 1024g")));
        }
        Ok(value)
    }

    fn positive(&mut self, key: &'static str, default: u64) -> Result<u64> {
        match self.take(key, default)? {
            0 => Err(self.error(format!("{key} must not be 0"))),
            n => Ok(n),
        }
    }

    fn rank_count(&mut self, key: &'static str, default: u32, least: u64) -> Result<u32> {
        let n = self.take(key, u64::from(default))?;
        match u32::try_from(n) {
            Ok(count) if n >= least && n <= 1 << 20 => Ok(count),
            _ => Err(self.error(format!("{key}={n} must be from {least} to 1m"))),
        }
    }
}

fn size(text: &str) -> Option<u64> {
    let units = [('k', 10), ('m', 20), ('g', 30)];
    let last = text.chars().last().map(|c| c.to_ascii_lowercase());
    match units.iter().find(|(unit, _)| Some(*unit) == last) {
        Some((_, shift)) => text[..text.len() - 1]
            .parse::<u64>()
            .ok()?
            .checked_mul(1 << shift),
        None => text.parse().ok(),
    }
}

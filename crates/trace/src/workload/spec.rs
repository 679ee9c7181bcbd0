//! Workloads by name, for the command line: `ior-strided:ranks=16,size=47008,calls=100`.
//!
//! Every workload takes `write` (0 or 1) and `readers` as well. Numbers may end in `k`, `m` or `g` (powers of 1024).

use super::{Btio, Ior, Layout, Milc, MilcLayout, Nested, Pagoda, Random, Tile, Workload};
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
        "ior-strided" | "ior-segmented" | "ior-n-n" => {
            let d = Ior::default();
            let ranks = v.rank_count("ranks", d.ranks, 1)?;
            let (segments, transfers) = match name {
                "ior-segmented" => (v.positive("segments", 4)?, v.positive("calls", 16)?),
                _ => (v.positive("calls", d.segments)?, 1),
            };
            Box::new(Ior {
                ranks,
                segments,
                transfers,
                transfer: v.positive("size", d.transfer)?,
                file_per_rank: name == "ior-n-n",
                ..d
            })
        }
        "fs-test" | "fs-test-segmented" | "fs-test-n-n" => {
            let ranks = v.rank_count("ranks", 16, 1)?;
            let calls = v.positive("calls", 256)?;
            let (segments, transfers) = match name {
                "fs-test-segmented" => (1, calls),
                _ => (calls, 1),
            };
            Box::new(Ior {
                name: "fs-test",
                ranks,
                segments,
                transfers,
                transfer: v.positive("size", 4096)?,
                file_per_rank: name == "fs-test-n-n",
            })
        }
        "tile" => {
            let d = Tile::default();
            Box::new(Tile {
                tiles_x: v.rank_count("x", d.tiles_x, 1)?,
                tiles_y: v.rank_count("y", d.tiles_y, 1)?,
                width: v.positive("width", d.width)?,
                height: v.positive("height", d.height)?,
                element: v.positive("element", d.element)?,
            })
        }
        "btio" => {
            let d = Btio::default();
            let q = v.rank_count("q", d.q, 1)?;
            let grid = v.positive("grid", d.grid)?;
            if grid < u64::from(q) {
                return Err(v.error(format!("grid={grid} is smaller than q={q}")));
            }
            Box::new(Btio {
                q,
                grid,
                dumps: v.positive("dumps", d.dumps)?,
            })
        }
        "milc-a" | "milc-b" | "milc-c" => Box::new(milc(name, v)?),
        "nested-2d" | "nested-3d" => {
            let mut counts = vec![v.positive("inner", 16)?, v.positive("middle", 8)?];
            if name == "nested-3d" {
                counts.push(v.positive("outer", 4)?);
            }
            let (ranks, len) = (v.rank_count("ranks", 16, 1)?, v.positive("size", 4096)?);
            Box::new(Nested::in_turn(
                ranks,
                len,
                &counts,
                v.take("gap", 64 << 10)?,
            ))
        }
        "pagoda" => {
            let d = Pagoda::default();
            Box::new(Pagoda {
                ranks: v.rank_count("ranks", d.ranks, 1)?,
                steps: v.positive("steps", d.steps)?,
                variables: d.variables,
            })
        }
        "random" | "random-overlap" => {
            let d = Random::default();
            Box::new(Random {
                ranks: v.rank_count("ranks", d.ranks, 1)?,
                calls: v.positive("calls", d.calls)?,
                len: v.positive("size", d.len)?,
                overlap: name == "random-overlap",
                seed: v.take("seed", d.seed)?,
            })
        }
        _ => {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            return Err(v.error(format!("no such workload; there are: {}", names.join(", "))));
        }
    })
}

fn milc(name: &str, v: &mut Values<'_>) -> Result<Milc> {
    let mut milc = Milc {
        grid_x: v.rank_count("x", Milc::default().grid_x, 1)?,
        grid_y: v.rank_count("y", Milc::default().grid_y, 1)?,
        ..Milc::default()
    };
    for (key, sites) in ["lx", "ly", "lz", "lt"].into_iter().zip(&mut milc.local) {
        *sites = v.positive(key, *sites)?;
    }
    milc.site = v.positive("site", milc.site)?;
    if name != "milc-a" {
        milc.layout = MilcLayout::Contiguous;
        milc.buffer = v.positive("buffer", milc.buffer)?;
    }
    if name == "milc-c" {
        milc.layout = MilcLayout::Headed;
        milc.header = v.positive("header", milc.header)?;
    }
    Ok(milc)
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

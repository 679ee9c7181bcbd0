//! MMAT: minimum, maximum and average of a variable of a file, with open, pread and close. Nothing but the standard library.
//!
//! `rustc -O mmat.rs`, or in this repository `cargo run --release -p forebay-cli --example mmat -- FILE f32|f64 [OFFSET [STRIDE]]`
//!
//! The variable is every STRIDE-th number, the first at byte OFFSET. Numbers are little-endian; what is no number (NaN) is left out.
use std::error::Error;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

const BLOCK: usize = 4 << 20;
const USAGE: &str = "usage: mmat FILE f32|f64 [OFFSET [STRIDE]]";

struct Variable {
    path: String,
    width: usize,
    offset: u64,
    stride: usize,
}

struct Summary {
    minimum: f64,
    maximum: f64,
    sum: f64,
    values: u64,
}

impl Variable {
    fn from_args(args: &[String]) -> Option<Variable> {
        let (path, kind, more) = match args {
            [path, kind, more @ ..] if more.len() <= 2 => (path, kind, more),
            _ => return None,
        };
        Some(Variable {
            path: path.clone(),
            width: match kind.as_str() {
                "f32" => 4,
                "f64" => 8,
                _ => return None,
            },
            offset: more.first().map_or(Some(0), |n| n.parse().ok())?,
            stride: more
                .get(1)
                .map_or(Some(1), |n| n.parse().ok())
                .filter(|n| *n > 0)?,
        })
    }

    fn value(&self, bytes: &[u8]) -> f64 {
        let mut word = [0; 8];
        word[..self.width].copy_from_slice(bytes);
        match self.width {
            4 => f32::from_bits(u64::from_le_bytes(word) as u32).into(),
            _ => f64::from_le_bytes(word),
        }
    }

    fn summary(&self) -> std::io::Result<Summary> {
        let file = File::open(&self.path)?;
        let mut block = vec![0; BLOCK];
        let (mut at, mut skip) = (self.offset, 0);
        let mut summary = Summary {
            minimum: f64::INFINITY,
            maximum: f64::NEG_INFINITY,
            sum: 0.0,
            values: 0,
        };
        loop {
            let filled = read_block(&file, &mut block, at)?;
            let numbers = block[..filled].chunks_exact(self.width);
            let count = numbers.len();
            for bytes in numbers.skip(skip).step_by(self.stride) {
                let value = self.value(bytes);
                if !value.is_nan() {
                    summary.minimum = summary.minimum.min(value);
                    summary.maximum = summary.maximum.max(value);
                    summary.sum += value;
                    summary.values += 1;
                }
            }
            if filled < BLOCK {
                return Ok(summary);
            }
            // How many of the next block come before the next of the variable.
            skip = (skip + (self.stride - count % self.stride)) % self.stride;
            at += filled as u64;
        }
    }
}

/// Fills the block as far as the file goes; a read may give less than was asked for.
fn read_block(file: &File, block: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read_at(&mut block[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn run(variable: &Variable) -> Result<(), Box<dyn Error>> {
    let summary = variable.summary()?;
    if summary.values == 0 {
        return Err("there is no number".into());
    }
    println!(
        "minimum {:?}\nmaximum {:?}\naverage {:?}\nvalues {}",
        summary.minimum,
        summary.maximum,
        summary.sum / summary.values as f64,
        summary.values
    );
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(variable) = Variable::from_args(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&variable) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("mmat: {}: {e}", variable.path);
            ExitCode::FAILURE
        }
    }
}

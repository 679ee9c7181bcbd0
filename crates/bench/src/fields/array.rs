//! Arrays as they are encoded: their bytes, the type of their elements, and an earlier version to encode them against.
//!
//! Invariants: an array is whole elements; a base has as many bytes as its array; a container is of one array.
use super::cases::FieldsWork;
use super::{adam, generate};
use crate::fail::{Context, Failure, Result};
use forebay_codec::container::MAX_CONTAINER_LEN;
use forebay_codec::{ElementLayout, ElementType};
use std::path::Path;

/// An array of floating-point numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct FloatArray {
    /// The type of its elements.
    pub element: ElementType,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// An earlier version of the array, to encode it against.
    pub base: Option<Vec<u8>>,
}

/// Up to 1 MiB of an array.
#[derive(Debug, Clone, Copy)]
pub struct SourceContainer<'a> {
    /// Where it begins in the array.
    pub at: u64,
    /// Its bytes.
    pub raw: &'a [u8],
    /// Bytes at its place in the base.
    pub base: Option<&'a [u8]>,
    /// The type of its elements.
    pub layout: ElementLayout,
}

/// The containers of all arrays, one behind the other.
pub fn containers(arrays: &[FloatArray]) -> Vec<SourceContainer<'_>> {
    let of_array = |array| {
        let FloatArray {
            element,
            bytes,
            base,
        }: &FloatArray = array;
        bytes
            .chunks(MAX_CONTAINER_LEN)
            .enumerate()
            .map(move |(k, raw)| {
                let start = k * MAX_CONTAINER_LEN;
                SourceContainer {
                    at: start as u64,
                    raw,
                    base: base.as_ref().map(|base| &base[start..start + raw.len()]),
                    layout: ElementLayout::plain(*element),
                }
            })
    };
    arrays.iter().flat_map(of_array).collect()
}

/// The arrays of a case; none for means and stores. `training` is done once, for the first case that needs it.
///
/// # Errors
/// If an array of a dataset cannot be read.
pub fn load(
    work: &FieldsWork,
    size: u64,
    seed: u64,
    training: &mut Option<Vec<adam::Checkpoint>>,
) -> Result<Vec<FloatArray>> {
    match work {
        FieldsWork::Array { path, .. } => Ok(vec![read(path).doing(path.display())?]),
        FieldsWork::Means(_)
        | FieldsWork::Points(_)
        | FieldsWork::Store(_)
        | FieldsWork::Mount(_) => Ok(Vec::new()),
        FieldsWork::Generated(array) => Ok(vec![generate::generate(*array, size, seed)]),
        FieldsWork::Adam(part) => {
            let checkpoints = training.get_or_insert_with(|| adam::train(&adam::SHAPE, seed));
            Ok(adam::arrays(checkpoints, *part))
        }
    }
}

/// What the description of an array says of it that matters here.
#[derive(serde::Deserialize)]
struct Description {
    dtype: String,
}

/// Reads an array of a dataset: `PATH.bin.zst`, with its type in `PATH.json`.
fn read(path: &Path) -> Result<FloatArray> {
    let described = std::fs::read(with_suffix(path, ".json"))?;
    let Description { dtype } = serde_json::from_slice(&described)?;
    let element = match dtype.as_str() {
        "<f4" => ElementType::F32,
        "<f8" => ElementType::F64,
        "<f2" => ElementType::F16,
        "bf16" => ElementType::Bf16,
        other => return Err(Failure::new(format!("elements of type {other}"))),
    };
    let compressed = std::fs::File::open(with_suffix(path, ".bin.zst"))?;
    let bytes = zstd::decode_all(compressed)?;
    if bytes.is_empty() || bytes.len() % element.width() != 0 {
        return Err(Failure::new(format!(
            "{} bytes are not whole elements",
            bytes.len()
        )));
    }
    Ok(FloatArray {
        element,
        bytes,
        base: None,
    })
}

/// Appends to the last name of a path.
fn with_suffix(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_of_one_array_and_have_their_part_of_the_base() {
        let array = |len: usize, first: u8| FloatArray {
            element: ElementType::F32,
            bytes: vec![first; len],
            base: Some((0..len).map(|i| (i >> 20) as u8).collect()),
        };
        let arrays = [array(2_500_000, 1), array(8, 2)];
        let found: Vec<_> = containers(&arrays)
            .iter()
            .map(|c| (c.at, c.raw.len(), c.raw[0], c.base.unwrap()[0]))
            .collect();
        assert_eq!(
            found,
            [
                (0, 1 << 20, 1, 0),
                (1 << 20, 1 << 20, 1, 1),
                (2 << 20, 402_848, 1, 2),
                (0, 8, 2, 0)
            ]
        );
    }

    #[test]
    fn an_array_of_a_dataset_has_the_type_that_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.b");
        let bytes = zstd::encode_all(&[7; 16][..], 3).unwrap();
        std::fs::write(dir.path().join("a.b.bin.zst"), bytes).unwrap();
        for (dtype, element) in [("<f8", Some(ElementType::F64)), ("<i4", None)] {
            let text = format!("{{\"dtype\": \"{dtype}\", \"count\": 2}}");
            std::fs::write(dir.path().join("a.b.json"), text).unwrap();
            let array = read(&path).ok();
            assert_eq!(array.as_ref().map(|a| a.element), element);
            assert!(array.is_none_or(|a| a.bytes == [7; 16]));
        }
    }
}

//! The cases: arrays of the datasets, means over their folders, generated arrays, a training run, numbers of reference points, a
//! store on a slow disk, and a mount.
use super::mount_run::MountWork;
use super::store_run::{StoreArrays, StoreReads, StoreRun};
use crate::fail::{Context, Failure, Result};
use crate::harness::Case;
use std::path::{Path, PathBuf};

/// The input of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldsWork {
    /// An array of a dataset: the path without `.bin.zst`.
    Array {
        /// The folder that it is in.
        folder: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// Nothing: means over the arrays of a folder.
    Means(&'static str),
    /// A generated array.
    Generated(GeneratedArray),
    /// Checkpoints of a training run: this part of each, or all parts.
    Adam(Option<CheckpointPart>),
    /// The arrays of fields by the paper's codec, with so many reference points in a container of 1 MiB.
    Points(u64),
    /// Arrays written to a store and read again.
    Store(StoreRun),
    /// Arrays in files of a mount.
    Mount(MountWork),
}

/// Arrays that follow from a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratedArray {
    /// Waves in two dimensions.
    Smooth,
    /// The same with noise in the lower half of the mantissas.
    Noisy,
    /// Random bytes.
    Random,
}

/// Parts of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointPart {
    /// Weights as binary32.
    Weights,
    /// Weights as bfloat16.
    Bf16Weights,
    /// Adam's first moments.
    FirstMoments,
    /// Adam's second moments.
    SecondMoments,
}

impl CheckpointPart {
    /// Every part.
    pub const ALL: [CheckpointPart; 4] = [
        CheckpointPart::Weights,
        CheckpointPart::Bf16Weights,
        CheckpointPart::FirstMoments,
        CheckpointPart::SecondMoments,
    ];
}

/// Numbers of reference points in a container: from one in each piece of 4 KiB to as many as the codec has for binary32.
const POINTS: [u64; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];
/// Folders of datasets.
const FOLDERS: [&str; 2] = ["fields", "checkpoints"];
/// How the name of an array's file ends.
const ARRAY_SUFFIX: &str = ".bin.zst";

/// The cases of `fields`. A folder that is missing is reported, and has no arrays.
///
/// # Errors
/// If a folder that is there cannot be read.
pub fn all(data: &Path) -> Result<Vec<Case<FieldsWork>>> {
    let mut cases = Vec::new();
    for folder in FOLDERS {
        cases.extend(arrays(data, folder)?);
        cases.push(Case::new(folder, FieldsWork::Means(folder)));
    }
    for (name, array) in [
        ("smooth", GeneratedArray::Smooth),
        ("noisy", GeneratedArray::Noisy),
        ("random", GeneratedArray::Random),
    ] {
        cases.push(Case::new(name, FieldsWork::Generated(array)));
    }
    let names = [
        "adam-weights",
        "adam-weights-bf16",
        "adam-exp-avg",
        "adam-exp-avg-sq",
    ];
    for (name, part) in names.into_iter().zip(CheckpointPart::ALL) {
        cases.push(Case::new(name, FieldsWork::Adam(Some(part))));
    }
    cases.push(Case::new("adam", FieldsWork::Adam(None)));
    for points in POINTS {
        cases.push(Case::named(
            format!("points-{points}"),
            FieldsWork::Points(points),
        ));
    }
    let last = StoreReads::LastThenAll;
    for (name, disk, arrays, reads) in [
        ("e2e-50", Some(50), StoreArrays::Fields, last),
        ("e2e-200", Some(200), StoreArrays::Fields, last),
        ("e2e-1000", Some(1000), StoreArrays::Fields, last),
        ("e2e-disk", None, StoreArrays::Fields, last),
        ("e2e-random-200", Some(200), StoreArrays::Random, last),
        (
            "mmat-200",
            Some(200),
            StoreArrays::Fields,
            StoreReads::MinMaxAverage,
        ),
    ] {
        let run = StoreRun {
            disk,
            arrays,
            reads,
        };
        cases.push(Case::new(name, FieldsWork::Store(run)));
    }
    for (name, work) in [
        ("mount-random-4k", MountWork::Reads),
        ("mount-checkpoints", MountWork::Checkpoints),
    ] {
        cases.push(Case::new(name, FieldsWork::Mount(work)));
    }
    Ok(cases)
}

/// The arrays of a folder, by name.
fn arrays(data: &Path, folder: &'static str) -> Result<Vec<Case<FieldsWork>>> {
    let dir = data.join(folder);
    if !dir.is_dir() {
        eprintln!(
            "skipped: {} is not there; --data DIR says where {folder} are",
            dir.display()
        );
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).doing(dir.display())? {
        let name = entry.doing(dir.display())?.file_name();
        let array = name.to_str().and_then(|n| n.strip_suffix(ARRAY_SUFFIX));
        names.extend(array.map(str::to_owned));
    }
    names.sort_unstable();
    let case = |name: String| {
        let path = dir.join(&name);
        Case::named(name, FieldsWork::Array { folder, path })
    };
    Ok(names.into_iter().map(case).collect())
}

/// The chosen cases, with the arrays that means are of before them, each case once.
///
/// # Errors
/// If a folder of which the mean was chosen has no arrays, and nothing else was chosen.
pub fn with_arrays(
    all: &[Case<FieldsWork>],
    chosen: Vec<Case<FieldsWork>>,
) -> Result<Vec<Case<FieldsWork>>> {
    let mut cases: Vec<Case<FieldsWork>> = Vec::new();
    for case in chosen {
        if let FieldsWork::Means(folder) = case.work {
            let of = arrays_of(all, folder);
            if of.is_empty() {
                continue;
            }
            for array in of {
                if !cases.contains(array) {
                    cases.push(array.clone());
                }
            }
        }
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    match cases.is_empty() {
        true => Err(Failure::new("nothing to measure: there are no arrays")),
        false => Ok(cases),
    }
}

/// The arrays of a folder.
pub fn arrays_of<'a>(all: &'a [Case<FieldsWork>], folder: &str) -> Vec<&'a Case<FieldsWork>> {
    let in_folder = |case: &&Case<FieldsWork>| matches!(&case.work, FieldsWork::Array { folder: f, .. } if *f == folder);
    all.iter().filter(in_folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cases: &[Case<FieldsWork>]) -> Vec<&'static str> {
        cases.iter().map(|case| case.name).collect()
    }

    fn data() -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("fields")).unwrap();
        for name in ["b.bin.zst", "b.json", "a.bin.zst", "a.json", "README.md"] {
            std::fs::write(data.path().join("fields").join(name), "").unwrap();
        }
        data
    }

    #[test]
    fn arrays_of_a_folder_that_is_there_are_cases_by_name() {
        let data = data();
        let all = all(data.path()).unwrap();
        assert_eq!(
            names(&all)[..5],
            ["a", "b", "fields", "checkpoints", "smooth"]
        );
        assert_eq!(
            names(&all)[5..],
            [
                "noisy",
                "random",
                "adam-weights",
                "adam-weights-bf16",
                "adam-exp-avg",
                "adam-exp-avg-sq",
                "adam",
                "points-256",
                "points-512",
                "points-1024",
                "points-2048",
                "points-4096",
                "points-8192",
                "points-16384",
                "e2e-50",
                "e2e-200",
                "e2e-1000",
                "e2e-disk",
                "e2e-random-200",
                "mmat-200",
                "mount-random-4k",
                "mount-checkpoints"
            ]
        );
    }

    #[test]
    fn means_bring_their_arrays_and_each_case_is_run_once() {
        let data = data();
        let all = all(data.path()).unwrap();
        let find = |name: &str| all.iter().find(|c| c.name == name).unwrap().clone();
        let select = |names: &[&str]| with_arrays(&all, names.iter().map(|n| find(n)).collect());
        assert_eq!(names(&select(&["fields"]).unwrap()), ["a", "b", "fields"]);
        let mixed = select(&["b", "random", "fields", "b"]).unwrap();
        assert_eq!(names(&mixed), ["b", "random", "a", "fields"]);
    }

    #[test]
    fn means_over_no_arrays_are_left_out() {
        let data = data();
        let all = all(data.path()).unwrap();
        let rest = with_arrays(&all, all.clone()).unwrap();
        assert!(!names(&rest).contains(&"checkpoints"));
        let alone = all.iter().filter(|c| c.name == "checkpoints").cloned();
        assert!(with_arrays(&all, alone.collect()).is_err());
    }
}

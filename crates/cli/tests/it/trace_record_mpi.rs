//! A service over four processes is recorded as a whole, whichever of its servers are asked.
//!
//! Without an `mpirun` the test says that it skips; with `FOREBAY_REQUIRE_MPI` set it fails.
use crate::common::mpi::{N, job, job_place, logs};
use forebay_trace::{Action, Call};

#[test]
fn the_recording_has_the_calls_of_all_mounts_and_a_file_is_the_same_on_all() {
    let Some(place) = job_place() else { return };
    let work: Vec<String> = (0..N)
        .map(|k| {
            let (here, there) = (
                place.text(&format!("m{k}")),
                place.text(&format!("m{}", (k + 1) % N)),
            );
            format!("echo hello > {here}/f{k} && cat {there}/f{k}")
        })
        .collect();
    std::fs::write(place.path("work.sh"), work.join(" && ")).unwrap();
    let script = format!(
        "{} trace record --mount {} --mount {} -o {} -- sh {}",
        env!("CARGO_BIN_EXE_forebay"),
        place.text("n0"),
        // Asked second, of what runs already.
        place.text("m2"),
        place.text("t"),
        place.text("work.sh"),
    );
    let (code, out, err) = job(&place, &script);
    assert_eq!(code, 0, "{out}{err}{}", logs(&place));
    assert_eq!(out, "hello\n".repeat(N));
    let recording = forebay_trace::open(&place.path("t")).unwrap();
    assert_eq!(recording.loss, None);
    for k in 0..N {
        let of = |action: Action| -> Vec<&Call> {
            let on = |c: &&Call| recording.files[c.file as usize].path == format!("f{k}");
            let calls = recording.calls.iter().filter(|c| c.action == action);
            calls.filter(on).collect()
        };
        let (writes, reads) = (of(Action::Write), of(Action::Read));
        assert_eq!(writes.iter().map(|c| c.len).sum::<u64>(), 6, "f{k}");
        assert_eq!(reads.iter().map(|c| c.len).sum::<u64>(), 6, "f{k}");
        // By inode one file, though each was made through one mount and read through another.
        assert_eq!(writes[0].file, reads[0].file);
        assert!(writes[0].end <= reads[0].start, "the clocks agree");
    }
    let left = std::fs::read_dir(place.path(".")).unwrap().flatten();
    let parts = left.filter(|e| e.file_name().to_string_lossy().starts_with(".t"));
    assert_eq!(parts.count(), 0, "the servers' files are gone");
}

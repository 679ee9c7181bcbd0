//! Staging between a plain directory and a running service, through the engine itself.

use crate::staging::{StagingFixture, assert_same_holes, plant, temporary_names};
use forebay_client::OpenOptions;
use forebay_client::stage::{Direction, LineKind, StageOptions, StageOutcome, StopReason};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::tree_compare::assert_same;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Small pieces, so that a test's large file is divided.
fn small() -> StageOptions {
    StageOptions {
        large: 3 << 20,
        piece: 1 << 20,
        batch_files: 16,
        ..StageOptions::default()
    }
}

/// A new directory of files `f00`, `f01`, ... of so many bytes.
fn source_of(fixture: &StagingFixture, files: u64, bytes: usize) -> PathBuf {
    let source = fixture.path("source");
    std::fs::create_dir(&source).unwrap();
    for n in 0..files {
        std::fs::write(source.join(format!("f{n:02}")), seeded_bytes(n, bytes)).unwrap();
    }
    source
}

#[test]
fn devices_are_for_root_to_copy_and_are_named_otherwise() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make device files");
        return;
    }
    let fixture = StagingFixture::new(2);
    let source = fixture.path("source");
    plant(&source);
    let devices = ["zero", "disk"];
    if !devices.iter().all(|name| source.join(name).exists()) {
        eprintln!("skipped: this user may not make device files");
        return;
    }
    let user = |client: forebay_client::Client| client.with_owner(1000, 1000);
    let clients = fixture.clients().into_iter().map(user).collect();
    let job = fixture.job_of(
        clients,
        Direction::In,
        &source,
        Path::new("/tree"),
        &small(),
    );
    let outcome = job.run();
    let run = crate::staging::RunResult::of(&job, outcome);
    assert_eq!(run.outcome, StageOutcome::Done, "{:?}", run.lines);
    let skipped: Vec<_> = run
        .lines
        .iter()
        .filter(|line| line.kind == LineKind::Skipped && line.text.contains("a device"))
        .collect();
    assert_eq!(skipped.len(), 2, "{:?}", run.lines);
    assert_eq!((run.counts.devices, run.counts.skipped), (0, 3));
    for name in devices {
        let there = fixture.clients()[0].metadata(Path::new("/tree").join(name));
        assert_eq!(there.unwrap_err().errno(), rustix::io::Errno::NOENT);
    }
    let run = fixture.run(Direction::In, &source, Path::new("/roots"), &small());
    assert_eq!((run.counts.devices, run.counts.skipped), (2, 1));
}

#[test]
fn a_tree_comes_back_as_it_went_in() {
    for nodes in [1, 3] {
        let fixture = StagingFixture::new(nodes);
        let (source, out) = (fixture.path("source"), fixture.path("out"));
        plant(&source);
        let options = StageOptions {
            verify: true,
            ..small()
        };
        let into = fixture.run(Direction::In, &source, Path::new("/tree"), &options);
        assert_eq!(into.outcome, StageOutcome::Done, "{:?}", into.lines);
        let skipped: Vec<_> = into
            .lines
            .iter()
            .map(|l| (l.kind, l.text.contains("socket")))
            .collect();
        assert_eq!(
            skipped,
            [(LineKind::Skipped, true)],
            "the socket is named and left out"
        );
        let back = fixture.run(Direction::Out, Path::new("/tree"), &out, &options);
        assert_eq!(back.outcome, StageOutcome::Done, "{:?}", back.lines);
        std::fs::remove_file(source.join("socket")).unwrap();
        // Removing it has changed the directory's time.
        let time = |p: &Path| std::fs::metadata(p).unwrap().modified().unwrap();
        assert!(time(&source) > time(&out));
        assert_same(&source, &out);
        assert_same_holes(&source, &out);
        assert_eq!(into.counts.files, back.counts.files);
        assert_eq!(into.counts.verified_files, into.counts.files);
        assert_eq!(back.counts.hard_links, 2);
        assert!(
            back.counts.bytes < 20 << 20,
            "holes are not copied: {:?}",
            back.counts
        );
        // Merging over what is there gives the same again, and leaves what is not in the source.
        std::fs::write(out.join("more"), "kept").unwrap();
        let again = fixture.run(Direction::Out, Path::new("/tree"), &out, &small());
        assert_eq!(
            (again.outcome, again.counts.kept_files),
            (StageOutcome::Done, 0)
        );
        assert_eq!(std::fs::read_to_string(out.join("more")).unwrap(), "kept");
        std::fs::remove_file(out.join("more")).unwrap();
        assert_same(&source, &out);
        assert_same_holes(&source, &out);
    }
}

#[test]
fn every_node_copies_what_it_holds_and_all_of_it_once() {
    let fixture = StagingFixture::new(3);
    for n in 0..30 {
        let client = &fixture.clients()[n % 3];
        let file = client.create(format!("/f{n}")).unwrap();
        file.write_at(&seeded_bytes(n as u64, 5000), 0).unwrap();
        file.close().unwrap();
    }
    let read_before: Vec<u64> = fixture.bytes_read();
    let run = fixture.run(
        Direction::Out,
        Path::new("/"),
        &fixture.path("out"),
        &small(),
    );
    assert_eq!((run.outcome, run.counts.files), (StageOutcome::Done, 30));
    let read: Vec<u64> = fixture
        .bytes_read()
        .iter()
        .zip(read_before)
        .map(|(a, b)| a - b)
        .collect();
    assert_eq!(read, [50_000; 3], "each reads its own ten files");
    for n in 0..30 {
        let copy = std::fs::read(fixture.path(&format!("out/f{n}"))).unwrap();
        assert_eq!(copy, seeded_bytes(n, 5000));
    }
}

#[test]
fn a_single_file_takes_the_name_it_is_given_and_no_directorys() {
    let fixture = StagingFixture::new(1);
    std::fs::write(fixture.path("a"), "one").unwrap();
    let run = fixture.run(Direction::In, &fixture.path("a"), Path::new("/b"), &small());
    assert_eq!(run.outcome, StageOutcome::Done);
    assert_eq!(fixture.clients()[0].read("/b").unwrap(), b"one");
    fixture.clients()[0].create_dir("/d").unwrap();
    let run = fixture.run(Direction::In, &fixture.path("a"), Path::new("/d"), &small());
    assert_eq!(run.outcome, StageOutcome::SomeFailed);
    assert!(
        run.lines[0].text.contains("Is a directory"),
        "{:?}",
        run.lines
    );
    let run = fixture.run(
        Direction::In,
        &fixture.path("none"),
        Path::new("/c"),
        &small(),
    );
    assert!(
        run.lines[0].text.contains("No such file"),
        "{:?}",
        run.lines
    );
}

/// A run that is cancelled after `after` files.
fn cut_off(
    fixture: &StagingFixture,
    direction: Direction,
    from: &Path,
    to: &Path,
    after: usize,
) -> crate::staging::RunResult {
    let written = Arc::new(AtomicUsize::new(0));
    let report = Arc::new(std::sync::OnceLock::<Arc<forebay_client::stage::StageReport>>::new());
    let (count, watched) = (written.clone(), report.clone());
    let options = StageOptions {
        hook: Some(Arc::new(move |_, _| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 == after {
                watched.get().unwrap().cancel();
            }
        })),
        jobs: 1,
        ..small()
    };
    let job = fixture.job(direction, from, to, &options);
    report.set(job.report()).unwrap();
    let outcome = job.run();
    assert_eq!(job.report().stop(), Some(StopReason::Cancelled));
    crate::staging::RunResult::of(&job, outcome)
}

#[test]
fn what_was_finished_is_not_copied_again_and_a_changed_source_is() {
    let fixture = StagingFixture::new(2);
    let source = source_of(&fixture, 60, 3000);
    std::fs::write(source.join("large"), seeded_bytes(99, 5 << 20)).unwrap();
    for (direction, from, to) in [
        (Direction::In, source.clone(), "/tree".into()),
        (Direction::Out, "/tree".into(), fixture.path("out")),
    ] {
        let first = cut_off(&fixture, direction, &from, &to, 30);
        assert_eq!(first.outcome, StageOutcome::Stopped);
        assert!((20..60).contains(&first.counts.files), "{:?}", first.counts);
        // Files are copied side by side, so any of the first ones may be late.
        let is_finished = |name: &str| match direction {
            Direction::In => {
                let path = format!("/tree/{name}");
                fixture.clients()[0].metadata(&path).is_ok()
            }
            Direction::Out => to.join(name).exists(),
        };
        let touched: &[&str] = match direction {
            Direction::In => &["f00"],
            Direction::Out => &["f00", "f01"],
        };
        let again = touched.iter().filter(|name| is_finished(name)).count() as u64;
        let changed = match direction {
            Direction::In => {
                std::fs::write(source.join("f00"), seeded_bytes(1000, 3000)).unwrap();
                "f00"
            }
            Direction::Out => {
                fixture.clients()[0]
                    .write("/tree/f01", &seeded_bytes(1001, 3000))
                    .unwrap();
                let file = std::fs::File::create(source.join("f01")).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &seeded_bytes(1001, 3000), 0)
                    .unwrap();
                let changed = fixture.clients()[0].metadata("/tree/f01").unwrap();
                file.set_modified(changed.modified().unwrap()).unwrap();
                // One that was finished, and that somebody has damaged since.
                std::fs::write(to.join("f00"), "short").unwrap();
                "f01"
            }
        };
        let second = fixture.run(direction, &from, &to, &small());
        assert_eq!(
            second.outcome,
            StageOutcome::Done,
            "{:?} {changed}",
            second.lines
        );
        assert_eq!(
            second.counts.kept_files,
            first.counts.files - again,
            "{changed}"
        );
        assert_eq!(second.counts.files + second.counts.kept_files, 61);
        let third = fixture.run(direction, &from, &to, &small());
        assert_eq!(third.counts.kept_files, 0, "a finished job is forgotten");
    }
    assert_same(&source, &fixture.path("out"));
    assert_eq!(temporary_names(&fixture.path("out")), 0);
}

/// As when one of several servers is killed after the end of a job, before it is told to forget what it has done.
#[test]
fn a_journal_that_outlives_its_job_says_nothing_of_the_next_copy() {
    let fixture = StagingFixture::new(2);
    for (node, at) in [(0, 0), (1, 3 << 20)] {
        let client = &fixture.clients()[node];
        let options = OpenOptions::new().create(true).write(true).clone();
        let file = options.open(client, "/large").unwrap();
        file.write_at(&seeded_bytes(node as u64, 3 << 20), at)
            .unwrap();
        file.close().unwrap();
    }
    let want = [seeded_bytes(0, 3 << 20), seeded_bytes(1, 3 << 20)].concat();
    let out = fixture.path("out");
    let again = || {
        let run = fixture.run(Direction::Out, Path::new("/large"), &out, &small());
        assert_eq!(run.outcome, StageOutcome::Done, "{:?}", run.lines);
        assert!(std::fs::read(&out).unwrap() == want, "{:?}", run.counts);
        run.counts
    };
    for _ in 0..2 {
        let job = fixture.job(Direction::Out, Path::new("/large"), &out, &small());
        let parts = job.parts();
        let journals = fixture.path("store/node-1/stage");
        let journal = std::fs::read_dir(&journals)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let noted = std::fs::read(journal.path()).unwrap();
        assert_eq!(job.finish(parts), StageOutcome::Done);
        assert!(!journal.path().exists());
        std::fs::write(journal.path(), noted).unwrap();
        again();
    }
    // What was written of a copy that is not finished is kept, as before.
    let job = fixture.job(Direction::Out, Path::new("/large"), &out, &small());
    drop(job.parts());
    assert_eq!(again().kept_bytes, 6 << 20);
}

#[test]
fn a_damaged_file_is_named_and_the_rest_is_copied() {
    let mut fixture = StagingFixture::new(2);
    let marker = b"this very text is damaged";
    for n in 0..20 {
        fixture.clients()[n % 2]
            .write(format!("/f{n}"), &seeded_bytes(n as u64, 100))
            .unwrap();
    }
    fixture.clients()[0].write("/hurt", marker).unwrap();
    fixture.clients()[0]
        .open("/hurt")
        .unwrap()
        .commit()
        .unwrap();
    fixture.restart(|store| crate::staging::flip(store, marker));
    let run = fixture.run(
        Direction::Out,
        Path::new("/"),
        &fixture.path("out"),
        &small(),
    );
    assert_eq!(run.outcome, StageOutcome::SomeFailed);
    assert_eq!((run.counts.files, run.counts.failed), (20, 1));
    assert!(
        run.lines[0].text.contains("cannot read /hurt"),
        "{:?}",
        run.lines
    );
    assert!(!fixture.path("out/hurt").exists());
    assert_eq!(temporary_names(&fixture.path("out")), 0);
    // The next run tries only what failed.
    let run = fixture.run(
        Direction::Out,
        Path::new("/"),
        &fixture.path("out"),
        &small(),
    );
    assert_eq!(
        (run.counts.kept_files, run.counts.files, run.counts.failed),
        (20, 0, 1)
    );
}

#[test]
fn a_further_name_of_a_file_that_failed_does_not_get_what_was_there_before() {
    let mut fixture = StagingFixture::new(1);
    let marker = b"this very text is damaged too";
    let client = &fixture.clients()[0];
    client.write("/a", marker).unwrap();
    client.hard_link("/a", "/b").unwrap();
    client.open("/a").unwrap().commit().unwrap();
    fixture.restart(|store| crate::staging::flip(store, marker));
    std::fs::create_dir(fixture.path("out")).unwrap();
    std::fs::write(fixture.path("out/a"), "older").unwrap();
    let run = fixture.run(
        Direction::Out,
        Path::new("/"),
        &fixture.path("out"),
        &small(),
    );
    assert_eq!(
        (run.outcome, run.counts.failed),
        (StageOutcome::SomeFailed, 2)
    );
    assert!(run.lines[1].text.contains("out/b"), "{:?}", run.lines);
    assert!(!fixture.path("out/b").exists());
}

#[test]
fn verification_finds_a_flipped_byte_before_the_copy_has_its_name() {
    let fixture = StagingFixture::new(1);
    let source = source_of(&fixture, 5, 50_000);
    std::fs::write(source.join("large"), seeded_bytes(9, 4 << 20)).unwrap();
    fixture.run(Direction::In, &source, Path::new("/tree"), &small());
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let options = StageOptions {
        verify: true,
        hook: Some(Arc::new(move |target, copy| {
            if target.ends_with("f03") || target.ends_with("large") {
                flip(copy);
            }
        })),
        jobs: 1,
        ..small()
    };
    let run = fixture.run(
        Direction::Out,
        Path::new("/tree"),
        &fixture.path("out"),
        &options,
    );
    assert_eq!(run.outcome, StageOutcome::SomeFailed);
    let mut named: Vec<_> = run.lines.iter().map(|l| l.text.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named.len(), 2, "{named:?}");
    assert!(
        named[0].contains("out/f03") && named[0].contains("differs"),
        "{named:?}"
    );
    assert!(named[1].contains("out/large"), "{named:?}");
    assert!(!fixture.path("out/f03").exists() && !fixture.path("out/large").exists());
    assert_eq!(run.counts.verified_files, 4);
    // Verifying what an earlier run has finished finds damage done since, though size and time are the same.
    let victim = fixture.path("out/f01");
    let time = std::fs::metadata(&victim).unwrap().modified().unwrap();
    flip(&victim);
    std::fs::File::options()
        .write(true)
        .open(&victim)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let options = StageOptions {
        verify: true,
        ..small()
    };
    let run = fixture.run(
        Direction::Out,
        Path::new("/tree"),
        &fixture.path("out"),
        &options,
    );
    assert_eq!(run.lines.len(), 1, "{:?}", run.lines);
    assert!(run.lines[0].text.contains("f01"), "{:?}", run.lines);
    assert_eq!(
        std::fs::read(fixture.path("out/large")).unwrap(),
        seeded_bytes(9, 4 << 20)
    );
    // What was found damaged is copied again.
    let run = fixture.run(
        Direction::Out,
        Path::new("/tree"),
        &fixture.path("out"),
        &options,
    );
    assert_eq!((run.outcome, run.counts.files), (StageOutcome::Done, 1));
    assert_same(&source, &fixture.path("out"));
}

#[test]
fn a_full_target_ends_the_run_with_one_message_and_a_later_run_goes_on() {
    let fixture = StagingFixture::new(1);
    let Some(disk) = fixture.tmpfs("disk", 2 << 20) else {
        return;
    };
    let source = source_of(&fixture, 40, 100_000);
    fixture.run(Direction::In, &source, Path::new("/tree"), &small());
    let to = disk.join("out");
    let run = fixture.run(Direction::Out, Path::new("/tree"), &to, &small());
    assert_eq!(run.outcome, StageOutcome::Stopped);
    let Some(StopReason::Fatal(text)) = &run.stop else {
        panic!("{:?}", run.stop);
    };
    assert!(
        text.contains("full") && text.contains("make room"),
        "{text}"
    );
    assert!((10..40).contains(&run.counts.files), "{:?}", run.counts);
    assert_eq!(temporary_names(&to), 0, "nothing half-written stays");
    fixture.grow(&disk, 20 << 20);
    let second = fixture.run(Direction::Out, Path::new("/tree"), &to, &small());
    assert_eq!(second.outcome, StageOutcome::Done);
    assert_eq!(second.counts.kept_files, run.counts.files);
    assert_same(&source, &to);
    fixture.read_only(&disk);
    let run = fixture.run(
        Direction::Out,
        Path::new("/tree"),
        &disk.join("other"),
        &small(),
    );
    assert!(
        matches!(&run.stop, Some(StopReason::Fatal(text)) if text.contains("read-only")),
        "{:?}",
        run.stop
    );
}

#[test]
fn a_service_over_its_quota_ends_the_run_and_keeps_what_is_whole() {
    let fixture = StagingFixture::with_quota(1, 2 << 20);
    let source = source_of(&fixture, 40, 100_000);
    let run = fixture.run(Direction::In, &source, Path::new("/tree"), &small());
    assert!(
        matches!(&run.stop, Some(StopReason::Fatal(text)) if text.contains("full")),
        "{:?}",
        run.stop
    );
    let client = &fixture.clients()[0];
    let names: Vec<_> = client
        .read_dir("/tree")
        .unwrap()
        .map(|e| e.unwrap())
        .collect();
    assert!(
        names.len() as u64 == run.counts.files && run.counts.files >= 5,
        "{:?}",
        run.counts
    );
    for entry in names {
        let name = entry.file_name().to_str().unwrap();
        let n: u64 = name[1..].parse().unwrap();
        assert_eq!(client.read(entry.path()).unwrap(), seeded_bytes(n, 100_000));
    }
}

#[test]
fn rights_times_and_holes_of_a_lone_sparse_read_only_file_stay() {
    let fixture = StagingFixture::new(1);
    let (source, out) = (fixture.path("sparse"), fixture.path("back"));
    let file = std::fs::File::create(&source).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 50 << 20).unwrap();
    file.set_len(64 << 20).unwrap();
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o440)).unwrap();
    drop(file);
    assert_eq!(
        fixture
            .run(Direction::In, &source, Path::new("/s"), &small())
            .outcome,
        StageOutcome::Done
    );
    let run = fixture.run(Direction::Out, Path::new("/s"), &out, &small());
    assert_eq!(run.outcome, StageOutcome::Done, "{:?}", run.lines);
    let (a, b) = (source.metadata().unwrap(), out.metadata().unwrap());
    assert_eq!(
        (a.size(), a.mode(), a.mtime(), a.mtime_nsec()),
        (b.size(), b.mode(), b.mtime(), b.mtime_nsec())
    );
    assert!(b.blocks() * 512 < 1 << 20, "{} blocks", b.blocks());
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&out).unwrap());
}

#[test]
fn what_changes_after_it_was_copied_and_before_it_has_its_name_is_copied_again() {
    for (direction, nodes) in [(Direction::Out, 3), (Direction::In, 1)] {
        let fixture = StagingFixture::new(nodes);
        let source = source_of(&fixture, 20, 3000);
        let client = fixture.clients().remove(0);
        let (from, to) = match direction {
            Direction::Out => {
                let run = fixture.run(Direction::In, &source, Path::new("/tree"), &small());
                assert_eq!(run.outcome, StageOutcome::Done);
                (Path::new("/tree").to_path_buf(), fixture.path("out"))
            }
            Direction::In => (source.clone(), Path::new("/tree").to_path_buf()),
        };
        let changed = from.clone();
        let options = StageOptions {
            // All land together at the end, long after each was copied.
            batch_files: 100,
            jobs: 1,
            hook: Some(Arc::new(move |target, _| {
                let name = target.file_name().unwrap();
                let path = changed.join(name);
                let service = direction == Direction::Out;
                match name.to_str().unwrap() {
                    "f03" if service => {
                        let mut content = client.read(&path).unwrap();
                        content[100..107].copy_from_slice(b"changed");
                        client.write(&path, &content).unwrap();
                    }
                    "f04" if service => client
                        .attributes(&path)
                        .set_xattr("user.new", b"x")
                        .unwrap(),
                    "f05" if service => client.remove_file(&path).unwrap(),
                    "f03" => {
                        let file = std::fs::File::options().write(true).open(&path).unwrap();
                        std::os::unix::fs::FileExt::write_at(&file, b"changed", 100).unwrap();
                    }
                    "f05" => std::fs::remove_file(&path).unwrap(),
                    _ => {}
                }
            })),
            ..small()
        };
        let run = fixture.run(direction, &from, &to, &options);
        assert_eq!(run.outcome, StageOutcome::SomeFailed, "f05 is gone");
        assert_eq!((run.counts.files, run.counts.failed), (19, 1));
        assert!(run.lines[0].text.contains("f05"), "{:?}", run.lines);
        let out = match direction {
            Direction::Out => to,
            Direction::In => {
                let back = fixture.run(Direction::Out, &to, &fixture.path("back"), &small());
                assert_eq!(back.outcome, StageOutcome::Done);
                fixture.path("back")
            }
        };
        let mut want = seeded_bytes(3, 3000);
        want[100..107].copy_from_slice(b"changed");
        assert!(std::fs::read(out.join("f03")).unwrap() == want);
        assert!(std::fs::read(out.join("f04")).unwrap() == seeded_bytes(4, 3000));
        if direction == Direction::Out {
            let mut value = [0; 9];
            let n = rustix::fs::getxattr(out.join("f04"), "user.new", &mut value).unwrap();
            assert_eq!(&value[..n], b"x");
        }
        assert!(!out.join("f05").exists());
        assert_eq!(temporary_names(&out), 0);
    }
}

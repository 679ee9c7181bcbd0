//! Components of the namespace built alone, over a bare store.
use crate::files::{FilesHook, PreparedRemoval};
use crate::inodes::{Inode, Inodes};
use crate::meta::attempt::AttemptError;
use crate::meta::directory_move_lock::DirectoryMoveLock;
use crate::meta::local::LocalNamespace;
use crate::meta::participant::IntentParticipant;
use crate::meta::recover::make_root;
use crate::*;
use forebay_proto::intents::{EntryTarget, IntentId, IntentPart, IntentStep, Precondition};
use forebay_storage::{Batch, Options, OsIo, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files that nobody has open.
struct NoFiles;

impl FilesHook for NoFiles {
    fn writers(&self, _: Fid) -> bool {
        false
    }
    fn orphaned(&self, _: Fid) {}
    fn open_new(&self, _: Fid, _: Member, _: forebay_proto::meta::NewOpen) -> bool {
        true
    }
    fn is_open(&self, _: Fid) -> bool {
        false
    }
    fn named(&self, _: Fid) {}
    fn remove_at_once<'a>(
        &'a self,
        _: Fid,
        _: &Inode,
        _: &mut Batch,
    ) -> Option<Box<dyn PreparedRemoval + 'a>> {
        None
    }
}

fn local(dir: &std::path::Path) -> Arc<LocalNamespace> {
    let store = Store::open(Arc::new(OsIo), dir, Options::default()).unwrap();
    let store = Arc::new(store);
    let inodes = Arc::new(Inodes::new(store.clone(), 0).unwrap());
    let local = LocalNamespace::new(store, inodes, 0, Arc::new(NoFiles));
    make_root(&local).unwrap();
    Arc::new(local)
}

fn intent(number: u64) -> IntentId {
    IntentId {
        coordinator: 1,
        number,
    }
}

#[test]
fn the_directory_move_lock_is_one_intents_and_wakes_who_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let local = local(dir.path());
    let lock = DirectoryMoveLock::open(local.clone()).unwrap();
    lock.take(intent(1)).unwrap();
    lock.take(intent(1)).unwrap();
    let refused = lock.take(intent(2));
    assert!(matches!(refused, Err(AttemptError::Busy { at: 0, by }) if by == intent(1)));
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let waits = scope.spawn(|| lock.wait(intent(1), Duration::from_secs(600)));
        lock.release(intent(2)).unwrap();
        lock.release(intent(1)).unwrap();
        waits.join().unwrap();
        // Without the wake-up it takes all of the limit.
        assert!(begun.elapsed() < Duration::from_secs(500));
    });
    lock.take(intent(2)).unwrap();
    let again = DirectoryMoveLock::open(local).unwrap();
    assert_eq!(again.holder(), Some(intent(2)), "it is on disk");
}

#[test]
fn a_participant_holds_what_it_prepared_until_its_steps_are_done_once() {
    let dir = tempfile::tempdir().unwrap();
    let local = local(dir.path());
    let participant = IntentParticipant::open(local.clone()).unwrap();
    let fid = local.inodes.allocate_fid().unwrap();
    let entry = |is| Precondition::Entry {
        dir: Fid::ROOT,
        name: b"name".to_vec(),
        is,
    };
    participant
        .prepare(intent(4), 1, vec![entry(None)], None)
        .unwrap();
    let other = participant.prepare(intent(5), 1, vec![entry(None)], None);
    assert!(matches!(other, Err(AttemptError::Busy { by, .. }) if by == intent(4)));
    // A restart knows of it too.
    let participant = IntentParticipant::open(local.clone()).unwrap();
    assert_eq!(local.holds.older(Duration::ZERO), [intent(4)]);
    let to = EntryTarget {
        fid,
        kind: Kind::File,
    };
    let links = |local: &LocalNamespace| local.inodes.get(Fid::ROOT).unwrap().nlink;
    let before = links(&local);
    let part = IntentPart {
        makes: Vec::new(),
        steps: vec![
            IntentStep::Entry {
                dir: Fid::ROOT,
                name: b"name".to_vec(),
                to: Some(to),
            },
            IntentStep::UpdateDirectory {
                dir: Fid::ROOT,
                links: 1,
                time: Time::default(),
            },
        ],
    };
    for _ in 0..3 {
        participant.apply_part(intent(4), 1, &part, None).unwrap();
    }
    assert_eq!(links(&local), before + 1);
    assert_eq!(local.get_entry(Fid::ROOT, b"name").unwrap(), to);
    assert!(local.holds.older(Duration::ZERO).is_empty());
    // What was given up is held no more.
    let held = vec![entry(Some(to))];
    participant
        .prepare(intent(6), 1, held.clone(), None)
        .unwrap();
    participant.abort(intent(6)).unwrap();
    participant.prepare(intent(7), 1, held, None).unwrap();
}

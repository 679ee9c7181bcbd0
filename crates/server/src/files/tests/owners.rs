//! Components of `files` built alone, each over a bare store and other members that only answer what is asked of them here.
use super::super::commit::{CommitDecision, CommitOutcomes, DecidedCommits};
use super::super::context::MemberContext;
use super::super::records::CommitId;
use super::super::slice_index::SliceIndex;
use super::super::staged::StagedParts;
use super::super::work_queue::WorkQueue;
use super::world::put;
use crate::inodes::{Inode, Inodes};
use crate::outbox::Outbox;
use crate::tests::TestPeers;
use crate::{Fid, Member, Result, Time};
use forebay_fabric::Message;
use forebay_index::SLICE;
use forebay_proto::Request;
use forebay_proto::call::Call;
use forebay_proto::files::{GetDecision, PublishReply, PublishStaged};
use forebay_storage::{Batch, Options, OsIo, Store};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// The other members: what they are asked, and what they answer next.
#[derive(Default)]
struct ScriptedPeers {
    asked: Mutex<Vec<(Member, String)>>,
    answers: Mutex<Vec<Result<Message>>>,
}

impl ScriptedPeers {
    fn exchange(&self, to: Member, request: Request) -> Result<Message> {
        self.asked.lock().push((to, format!("{request:?}")));
        match self.answers.lock().pop() {
            Some(answer) => answer,
            None => Err(Errno::IO.into()),
        }
    }
}

/// What owners are built over.
struct BareMember {
    context: Arc<MemberContext>,
    peers: Arc<ScriptedPeers>,
    outbox: Arc<Outbox>,
    _dir: tempfile::TempDir,
}

impl BareMember {
    fn new(member: Member) -> BareMember {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Arc::new(OsIo), dir.path(), Options::default()).unwrap();
        let store = Arc::new(store);
        let inodes = Arc::new(Inodes::new(store.clone(), member).unwrap());
        let script = Arc::new(ScriptedPeers::default());
        let scripted = script.clone();
        let peers = Arc::new(TestPeers {
            member,
            members: 3,
            deadline: Duration::from_secs(60),
            exchange: move |to, request| scripted.exchange(to, request),
        });
        BareMember {
            outbox: Arc::new(Outbox::open(store.clone(), peers.clone(), Arc::default()).unwrap()),
            context: Arc::new(MemberContext::new(store, inodes, peers)),
            peers: script,
            _dir: dir,
        }
    }

    fn staged(&self) -> StagedParts {
        let slices = SliceIndex::open(self.context.clone(), self.outbox.clone()).unwrap();
        StagedParts::load(self.context.clone(), Arc::new(slices)).unwrap()
    }

    fn decided(&self) -> DecidedCommits {
        let work = Arc::<WorkQueue>::default();
        DecidedCommits::load(self.context.clone(), self.outbox.clone(), work).unwrap()
    }

    /// A file of this member.
    fn file(&self) -> Fid {
        let fid = self.context.inodes.allocate_fid().unwrap();
        let inode = Inode::new(crate::Kind::File, 0o644, 0, 0, Time::default());
        let mut batch = Batch::new();
        self.context.inodes.put(&mut batch, fid, &inode);
        self.context.store.apply(batch).unwrap();
        fid
    }
}

fn published(reply: Result<Option<PublishReply>>) -> (u64, u64) {
    let PublishReply { added, freed } = reply.unwrap().unwrap();
    (added, freed)
}

#[test]
fn a_staged_part_is_published_once_however_often_it_is_asked() {
    let member = BareMember::new(1);
    let staged = member.staged();
    // Slice 1 of a file of member 0 is here.
    let fid = Fid::new(0, 7);
    let id = |token| CommitId {
        fid,
        writer: 2,
        token,
    };
    let part = |len, log| [put(2, &(SLICE..SLICE + len), log)];
    staged.stage(id(1), &part(100, 8), false).unwrap();
    staged.stage(id(2), &part(40, 9), false).unwrap();
    assert_eq!(published(staged.publish(id(1), 5, false, false)), (100, 0));
    assert_eq!(published(staged.publish(id(2), 6, false, false)), (40, 40));
    // Again, as after a lost answer, also after a restart.
    let again = member.staged();
    assert!(again.table.is_empty());
    assert_eq!(published(again.publish(id(2), 6, false, false)), (40, 40));
    assert_eq!(published(again.publish(id(1), 5, false, false)), (0, 0));
    let never = again.publish(id(3), 7, false, false).unwrap();
    assert_eq!(never, None);
    assert_eq!(again.last_published(fid).unwrap().seq, 6);
}

#[test]
fn a_staged_part_stays_until_its_owner_says_what_became_of_it() {
    let member = BareMember::new(1);
    let staged = member.staged();
    let id = CommitId {
        fid: Fid::new(0, 7),
        writer: 2,
        token: 1,
    };
    let part = [put(2, &(SLICE..SLICE + 8), 9)];
    staged.stage(id, &part, false).unwrap();
    assert!(staged.give_up(id).is_err(), "the owner does not answer");
    assert_eq!(staged.table.older(std::time::Duration::ZERO), [id]);
    *member.peers.answers.lock() = vec![Ok(GetDecision::encode_reply(Ok(None)))];
    staged.give_up(id).unwrap();
    assert!(staged.table.is_empty() && member.staged().table.is_empty());
    let asked = member.peers.asked.lock();
    assert!(asked.iter().all(|(to, _)| *to == 0), "{asked:?}");
}

#[test]
fn a_decision_stays_until_each_member_has_published() {
    let member = BareMember::new(0);
    let fid = member.file();
    let decided = member.decided();
    let id = CommitId {
        fid,
        writer: 1,
        token: 4,
    };
    let mut batch = Batch::new();
    let decision = CommitDecision {
        id,
        seq: 9,
        members: vec![1, 2],
        has_synced_bytes: false,
        longer: None,
    };
    decided.put(&mut batch, &decision).unwrap();
    member.context.store.apply(batch).unwrap();
    let decided = member.decided();
    assert_eq!(decided.sequence_of(id), Some(9));
    // Member 1 publishes, member 2 cannot be reached.
    let done = || {
        let (added, freed) = (10, 0);
        Ok(PublishStaged::encode_reply(Ok(Some(PublishReply {
            added,
            freed,
        }))))
    };
    *member.peers.answers.lock() = vec![Err(Errno::IO.into()), done()];
    assert_eq!(decided.publish(fid, true).unwrap(), [2]);
    let decided = member.decided();
    assert_eq!(decided.files(), [fid]);
    *member.peers.answers.lock() = vec![done()];
    assert_eq!(decided.publish(fid, true).unwrap(), [0u16; 0]);
    assert!(decided.files().is_empty() && member.decided().files().is_empty());
    assert_eq!(member.context.inodes.get(fid).unwrap().bytes, 20);
    assert_eq!(decided.participants(fid).unwrap(), [1, 2]);
}

#[test]
fn what_was_promised_never_to_be_decided_stays_so() {
    let member = BareMember::new(0);
    let fid = member.file();
    let decided = Arc::new(member.decided());
    let outcomes = CommitOutcomes::new(member.context.clone(), decided.clone());
    let id = |token| CommitId {
        fid,
        writer: 1,
        token,
    };
    let decision = |id, abort| outcomes.decision(id, abort).unwrap();
    assert_eq!(decision(id(1), false), None);
    assert!(!outcomes.is_given_up(id(1)).unwrap());
    assert_eq!(decision(id(1), true), None);
    assert!(outcomes.is_given_up(id(1)).unwrap());
    // One that happened is answered after a restart too, by its receipt.
    let mut batch = Batch::new();
    outcomes.put_receipt(&mut batch, id(2), 5);
    member.context.store.apply(batch).unwrap();
    assert_eq!(decision(id(2), true), Some(5));
    outcomes.sweep(&[(fid, 1, 1)]).unwrap();
    assert_eq!(
        decision(id(2), true),
        Some(5),
        "the receipt is of a newer commit"
    );
    outcomes.sweep(&[(fid, 1, 2)]).unwrap();
    assert_eq!(decision(id(2), false), None);
}

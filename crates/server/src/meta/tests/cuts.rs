//! Operations over several members, cut before every batch they write: afterwards the tree is the old one or the new
//! one, links are right, and nothing is left over.
use super::net::*;
use crate::meta::records::{self, Intent, RecordTag};
use crate::meta::steps::Precondition;
use crate::*;
use rustix::io::Errno;
use std::sync::Arc;

const PLAIN: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: false,
};
const EXCHANGE: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: true,
};

/// A tree to start from, and an operation. Fids: three directories, at members 0, 1 and 2.
pub(super) struct Case {
    pub name: &'static str,
    setup: fn(&Net, [Fid; 3]),
    pub op: fn(&Net, [Fid; 3]) -> Result<()>,
    /// Asked a second time, it changes nothing, or fails because it is done.
    once: bool,
}

fn named_file(net: &Net, parent: Fid, name: &str, uid: u32) -> Fid {
    net.create_as(parent, name, file(0o600), Caller { uid, gid: 0 })
        .unwrap()
        .fid
}

/// A file whose inode is at the owner of `home`, with its name in `parent` only.
fn stray_file(net: &Net, home: Fid, parent: Fid, name: &str, uid: u32) -> Fid {
    let fid = named_file(net, home, "stray", uid);
    net.rename((home, "stray"), (parent, name), PLAIN).unwrap();
    fid
}

/// A directory at member `at` called `name` in `parent`.
fn named_dir(net: &Net, parent: Fid, name: &str, at: Member) -> Fid {
    let fid = net.dir_at(parent, at);
    let made = net
        .readdir(parent, None, 100)
        .unwrap()
        .into_iter()
        .find(|e| e.fid == fid)
        .unwrap();
    net.rename(
        (parent, std::str::from_utf8(&made.name).unwrap()),
        (parent, name),
        PLAIN,
    )
    .unwrap();
    fid
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "rename a file",
        setup: |net, [_, b, _]| {
            named_file(net, b, "f", 11);
        },
        op: |net, [_, b, c]| net.rename((b, "f"), (c, "g"), PLAIN),
        once: true,
    },
    Case {
        name: "rename a file over a file of a third member",
        setup: |net, [a, b, c]| {
            named_file(net, b, "f", 11);
            stray_file(net, a, c, "g", 12);
        },
        op: |net, [_, b, c]| net.rename((b, "f"), (c, "g"), PLAIN),
        once: true,
    },
    Case {
        name: "rename a file of a third member over one of two links",
        setup: |net, [a, b, c]| {
            stray_file(net, a, b, "f", 11);
            let fid = named_file(net, b, "other", 12);
            net.link(fid, c, "g").unwrap();
        },
        op: |net, [_, b, c]| net.rename((b, "f"), (c, "g"), PLAIN),
        once: true,
    },
    Case {
        name: "rename a directory",
        setup: |net, [_, b, _]| {
            let d = named_dir(net, b, "d", 0);
            named_file(net, d, "inside", 11);
        },
        op: |net, [_, b, c]| net.rename((b, "d"), (c, "e"), PLAIN),
        once: true,
    },
    Case {
        name: "rename a directory over an empty one of a third member",
        setup: |net, [_, b, c]| {
            let d = named_dir(net, b, "d", 1);
            named_file(net, d, "inside", 11);
            named_dir(net, c, "e", 0);
        },
        op: |net, [_, b, c]| net.rename((b, "d"), (c, "e"), PLAIN),
        once: true,
    },
    Case {
        name: "rename a directory, coordinated by the root's owner",
        setup: |net, [_, b, _]| {
            named_dir(net, b, "d", 2);
        },
        op: |net, [a, b, _]| net.rename((b, "d"), (a, "e"), PLAIN),
        once: true,
    },
    Case {
        name: "exchange a directory and a file",
        setup: |net, [_, b, c]| {
            let d = named_dir(net, b, "d", 0);
            named_file(net, d, "inside", 11);
            named_file(net, c, "f", 12);
        },
        op: |net, [_, b, c]| net.rename((b, "d"), (c, "f"), EXCHANGE),
        once: false,
    },
    Case {
        name: "link a file of another member",
        setup: |net, [_, b, _]| {
            named_file(net, b, "f", 11);
        },
        op: |net, [_, b, c]| {
            net.lookup(b, "f")
                .and_then(|f| net.link(f.fid, c, "g"))
                .map(drop)
        },
        once: true,
    },
    Case {
        name: "give a file of another member its first name",
        setup: |net, _| {
            net.unnamed(1, 11, true);
        },
        op: |net, [_, _, c]| match net.orphans(1)[..] {
            [fid] => net.link(fid, c, "g").map(drop),
            _ => Err(Errno::NOENT.into()),
        },
        // The file goes with the member that had it open.
        once: false,
    },
    Case {
        name: "unlink the last name of a file of another member",
        setup: |net, [a, _, c]| {
            stray_file(net, a, c, "f", 11);
        },
        op: |net, [_, _, c]| net.unlink(c, "f", ROOT),
        once: true,
    },
    Case {
        name: "make a directory at another member",
        setup: |_, _| {},
        op: |net, [_, b, _]| {
            let name = (0..)
                .map(|i| i.to_string())
                .find(|n| crate::meta::names::directory_member(b, n.as_bytes(), 3) == 2);
            net.create(b, &name.unwrap(), dir(0o700)).map(drop)
        },
        once: true,
    },
    Case {
        name: "remove a directory of another member",
        setup: |net, [_, b, _]| {
            named_dir(net, b, "d", 2);
        },
        op: |net, [_, b, _]| net.rmdir(b, "d"),
        once: true,
    },
];

pub(super) fn fresh(net: &Arc<Net>, case: &Case) -> [Fid; 3] {
    net.wipe();
    let dirs = [0, 1, 2].map(|member| net.dir_at(Fid::ROOT, member));
    (case.setup)(net, dirs);
    dirs
}

pub(super) fn nothing_left(net: &Net, what: &str) {
    assert_eq!(net.check(), vec![], "{what}");
    for member in 0..3 {
        let store = net.store(member);
        assert!(
            records::all::<Intent>(store, RecordTag::Intent)
                .unwrap()
                .is_empty(),
            "{what}"
        );
        assert!(
            records::all::<Vec<Precondition>>(store, RecordTag::Prepared)
                .unwrap()
                .is_empty(),
            "{what}"
        );
        assert!(
            net.meta(member)
                .recovery
                .participant
                .move_lock
                .holder()
                .is_none(),
            "{what}"
        );
        assert!(
            net.meta(member)
                .coordinator
                .local
                .holds
                .older(Default::default())
                .is_empty(),
            "{what}"
        );
        assert_eq!(net.meta(member).coordinator.intents.left(), 0, "{what}");
    }
}

/// Runs the case with every cut and answers how many there were.
fn run(net: &Arc<Net>, case: &Case, all: bool) -> u64 {
    let dirs = fresh(net, case);
    let old = net.tree();
    (case.op)(net, dirs).unwrap();
    let new = net.tree();
    assert_ne!(old, new, "{}", case.name);
    nothing_left(net, case.name);
    for at in 0.. {
        let what = format!(
            "{}, cut at batch {at} ({})",
            case.name,
            if all { "all stop" } else { "one stops" }
        );
        let dirs = fresh(net, case);
        net.cut_at(at, all);
        let result = (case.op)(net, dirs);
        net.forget_done();
        if !net.cut_off() {
            result.unwrap();
            assert_eq!(net.tree(), new, "{what}");
            return at;
        }
        let stopped = net.stopped();
        stopped.iter().for_each(|member| net.start(*member));
        if !all && case.once {
            // The others did not restart: what the stopped one left with them must not be in the way for long.
            net.meta(stopped[0]).recovery.recover().unwrap();
            if let Err(e) = (case.op)(net, dirs) {
                assert!(
                    matches!(e.errno(), Errno::NOENT | Errno::EXIST),
                    "{what}: {e}"
                );
            }
            net.recover();
            assert_eq!(net.tree(), new, "{what}, and asked again");
        } else {
            net.recover();
            let tree = net.tree();
            assert!(
                tree == new || (result.is_err() && tree == old),
                "{what}: {result:?}\n{tree:#?}\nold {old:#?}\nnew {new:#?}"
            );
        }
        nothing_left(net, &what);
    }
    unreachable!()
}

#[test]
fn cut_at_every_step_when_all_members_stop() {
    let net = Net::new(3);
    for case in CASES {
        assert!(
            run(&net, case, true) >= 3,
            "{}: too few batches for an operation over members",
            case.name
        );
    }
}

#[test]
fn cut_at_every_step_when_one_member_stops() {
    let net = Net::new(3);
    for case in CASES {
        run(&net, case, false);
    }
}

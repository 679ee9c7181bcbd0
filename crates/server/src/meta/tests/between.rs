//! Other operations in the middle of one that spans members, before every message it sends: whichever of the two
//! happens, the tree stays whole.
use super::cuts::{CASES, fresh, nothing_left};
use super::net::*;
use crate::*;

type Meanwhile = fn(&Net, [Fid; 3]) -> Result<()>;

const EXCHANGE: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: true,
};

fn rename(net: &Net, from: (Fid, &str), to: (Fid, &str)) -> Result<()> {
    net.rename(from, to, RenameFlags::default())
}

/// What gets in the way of the cases: they work on `d`, `f` in `b` and on `e`, `f`, `g` in `c`.
const MEANWHILE: &[Meanwhile] = &[
    |net, [_, b, _]| net.unlink(b, "f", ROOT),
    |net, [_, _, c]| net.unlink(c, "g", ROOT),
    |net, [_, _, c]| net.unlink(c, "f", ROOT),
    |net, [_, b, _]| net.rmdir(b, "d"),
    |net, [_, _, c]| net.rmdir(c, "e"),
    |net, [a, b, _]| rename(net, (b, "f"), (a, "z")),
    |net, [a, _, c]| rename(net, (c, "g"), (a, "z")),
    |net, [_, b, c]| rename(net, (c, "g"), (b, "f")),
    |net, [_, b, c]| rename(net, (c, "e"), (b, "d")),
    |net, [_, b, c]| net.rename((c, "e"), (b, "d"), EXCHANGE),
    |net, [_, b, c]| net.rename((b, "f"), (c, "g"), EXCHANGE),
    |net, [_, b, _]| {
        net.lookup(b, "f")
            .and_then(|f| net.link(f.fid, b, "another"))
            .map(drop)
    },
    |net, [_, _, c]| {
        net.lookup(c, "e")
            .and_then(|e| net.create(e.fid, "late", file(0o600)))
            .map(drop)
    },
    |net, [_, b, _]| {
        net.lookup(b, "d")
            .and_then(|d| net.create(d.fid, "late", file(0o600)))
            .map(drop)
    },
    |net, [a, b, _]| {
        net.create(a, "e", file(0o600))
            .and_then(|_| net.create(b, "f", file(0o600)))
            .map(drop)
    },
    |net, [_, b, c]| {
        net.lookup(b, "d")
            .and_then(|d| rename(net, (c, "e"), (d.fid, "e")))
    },
];

#[test]
fn two_operations_leave_a_whole_tree() {
    let net = Net::new(3);
    for case in CASES {
        for (m, meanwhile) in MEANWHILE.iter().enumerate() {
            for at in 0.. {
                let dirs = fresh(&net, case);
                net.between(at, move |net| drop(meanwhile(net, dirs)));
                let result = (case.op)(&net, dirs);
                if !net.happened() {
                    break;
                }
                let what = format!("{}, {m} before message {at}: {result:?}", case.name);
                net.tree();
                nothing_left(&net, &what);
            }
        }
    }
}

#[test]
fn two_moves_of_directories_never_close_a_loop() {
    let mut refused = 0;
    let net = Net::new(3);
    for at in 0.. {
        net.wipe();
        let [_, b, c] = [0, 1, 2].map(|m| net.dir_at(Fid::ROOT, m));
        let listed = net.readdir(Fid::ROOT, None, 10).unwrap();
        let name = |fid| {
            String::from_utf8(listed.iter().find(|e| e.fid == fid).unwrap().name.clone()).unwrap()
        };
        let (b_name, c_name) = (name(b), name(c));
        let (inner_from, inner_to) = (c_name.clone(), "inside");
        net.between(at, move |net| {
            drop(rename(net, (Fid::ROOT, &inner_from), (b, inner_to)))
        });
        let result = rename(&net, (Fid::ROOT, &b_name), (c, "inside"));
        if !net.happened() {
            break;
        }
        refused += u32::from(net.lookup(Fid::ROOT, &c_name).is_ok());
        let what = format!("before message {at}: {result:?}");
        assert_eq!(net.tree().len(), 3, "{what}");
        nothing_left(&net, &what);
    }
    assert!(refused >= 3, "the moves did not get in each other's way");
}

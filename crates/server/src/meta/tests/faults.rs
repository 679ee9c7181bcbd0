//! The check finds each fault, and nothing else.
use super::net::*;
use crate::finding::Finding;
use crate::meta::check::check;
use crate::meta::entries;
use crate::meta::steps::EntryTarget;
use crate::*;
use forebay_storage::Batch;
use std::sync::Arc;

struct Tree {
    net: Arc<Net>,
    d: Fid,
    e: Fid,
    f: Fid,
}

/// `/d/f` and `/d/e`, all at one member.
fn tree() -> Tree {
    let net = Net::new(1);
    let d = net.create(Fid::ROOT, "d", dir(0o755)).unwrap().fid;
    let e = net.create(d, "e", dir(0o755)).unwrap().fid;
    let f = net.create(d, "f", file(0o644)).unwrap().fid;
    assert_eq!(net.check(), vec![]);
    Tree { net, d, e, f }
}

impl Tree {
    fn entry(&self, dir: Fid, name: &str, to: Option<(Fid, Kind)>) {
        let mut batch = Batch::new();
        entries::set(
            &mut batch,
            dir,
            name.as_bytes(),
            to.map(|(fid, kind)| EntryTarget { fid, kind }),
        );
        self.net.store(0).apply(batch).unwrap();
    }
    fn inode(&self, fid: Fid, change: impl FnOnce(&mut crate::inodes::Inode)) {
        self.net
            .meta(0)
            .coordinator
            .local
            .inodes
            .update(fid, |inode, _| {
                change(inode);
                Ok(())
            })
            .unwrap();
    }
}

fn damage(texts: &[String]) -> Vec<Finding> {
    texts.iter().map(Finding::damage).collect()
}

fn wrong_links(fid: Fid, links: u32, expected: u32) -> String {
    format!("inode {fid:#x}: {links} links, should be {expected}")
}

#[test]
fn an_entry_without_inode() {
    let t = tree();
    let fid = Fid::new(0, 4242);
    t.entry(t.d, "ghost", Some((fid, Kind::File)));
    assert_eq!(
        t.net.check(),
        damage(&[format!(
            "entry \"ghost\" of directory {:#x}: inode {fid:#x} does not exist",
            t.d
        )])
    );
}

#[test]
fn an_entry_without_directory() {
    let t = tree();
    t.entry(t.f, "x", Some((t.f, Kind::File)));
    assert_eq!(
        t.net.check(),
        damage(&[format!("entry \"x\" of {:#x}, which is no directory", t.f)])
    );
}

#[test]
fn wrong_links_of_files_and_directories() {
    let t = tree();
    t.inode(t.f, |inode| inode.nlink = 2);
    t.inode(t.d, |inode| inode.nlink = 9);
    let expected = [wrong_links(t.d, 9, 3), wrong_links(t.f, 2, 1)];
    assert_eq!(t.net.check(), damage(&expected));
}

#[test]
fn an_inode_without_name() {
    let t = tree();
    t.entry(t.d, "f", None);
    let nameless = format!("inode {:#x} has no name", t.f);
    assert_eq!(t.net.check(), damage(&[wrong_links(t.f, 1, 0), nameless]));
}

#[test]
fn a_dead_directory_with_entries() {
    let t = tree();
    t.inode(t.e, |inode| {
        inode.dead = true;
        inode.nlink = 0;
    });
    t.entry(t.e, "x", Some((t.f, Kind::File)));
    t.inode(t.f, |inode| inode.nlink = 2);
    assert_eq!(
        t.net.check(),
        damage(&[format!("removed directory {:#x} has entries", t.e)])
    );
}

#[test]
fn wrong_kind_wrong_parent_and_second_names() {
    let t = tree();
    t.entry(t.d, "f", Some((t.f, Kind::Symlink)));
    assert_eq!(
        t.net.check(),
        damage(&[format!(
            "entry \"f\" of directory {:#x}: inode {:#x} is of another kind",
            t.d, t.f
        )])
    );
    let t = tree();
    t.inode(t.e, |inode| inode.parent = Fid::ROOT);
    assert_eq!(
        t.net.check(),
        damage(&[format!(
            "directory {:#x}: parent {:#x}, should be {:#x}",
            t.e,
            Fid::ROOT,
            t.d
        )])
    );
    let t = tree();
    t.entry(t.d, "e2", Some((t.e, Kind::Dir)));
    t.inode(t.d, |inode| inode.nlink = 4);
    assert_eq!(
        t.net.check(),
        damage(&[format!(
            "entry \"e2\" of directory {:#x}: directory {:#x} has another name",
            t.d, t.e
        )])
    );
}

#[test]
fn a_loop_that_left_the_root() {
    let t = tree();
    t.entry(Fid::ROOT, "d", None);
    t.inode(Fid::ROOT, |inode| inode.nlink = 2);
    t.entry(t.e, "d", Some((t.d, Kind::Dir)));
    t.inode(t.e, |inode| inode.nlink = 3);
    t.inode(t.d, |inode| inode.parent = t.e);
    assert_eq!(
        t.net.check(),
        damage(&[t.d, t.e].map(|fid| format!("directory {fid:#x} has no way to the root")))
    );
}

#[test]
fn damaged_records_and_inodes_of_others() {
    let t = tree();
    let mut batch = Batch::new();
    batch.put(keys::INODES, t.f.0.to_be_bytes().to_vec(), vec![9, 9]);
    t.net.store(0).apply(batch).unwrap();
    let found = t.net.check();
    assert!(
        found[0].text.starts_with("member 0: ") && found[0].text.contains("version 9"),
        "{found:?}"
    );
    let t = tree();
    let found = check(&[(1, t.net.store(0))]);
    assert!(
        damage(&[format!(
            "member 1: inode {:#x} belongs to another member",
            Fid::ROOT
        )])
        .iter()
        .all(|f| found.contains(f)),
        "{found:?}"
    );
}

#[test]
fn cut_off_operations_are_no_fault_of_the_tree() {
    let net = Net::new(3);
    let [b, c] = [1, 2].map(|m| net.dir_at(Fid::ROOT, m));
    let mut unfinished = 0;
    for at in 0.. {
        let d = net.create(b, "d", dir(0o755)).unwrap().fid;
        net.cut_at(at, true);
        let _ = net.rename((b, "d"), (c, "d"), RenameFlags::default());
        let found = net.check();
        unfinished += found.len();
        assert!(
            found
                .iter()
                .all(|f| !f.is_damage && f.text.contains(" operations to finish, ")),
            "cut at {at}: {found:?}"
        );
        if !net.cut_off() {
            break;
        }
        net.restart();
        let _ = net.rmdir(b, "d");
        let _ = net.rmdir(c, "d");
        assert_eq!(net.getattr(d).unwrap().nlink, 0);
    }
    assert!(unfinished > 0);
}

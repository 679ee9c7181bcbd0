//! Random histories of the namespace over three members, with restarts and cuts, against a plain tree.
use super::net::*;
use crate::*;
use proptest::prelude::*;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A place: which directory (by its number among the living), and a name.
type Place = (usize, u8);

#[derive(Debug, Clone)]
enum Op {
    Make(Place, bool),
    Link(Place, Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, RenameFlags),
}

#[derive(Debug, Clone)]
enum Event {
    Op(Op),
    /// The operation, without the batch of this number; everyone stops, or only who wrote it.
    Cut(Op, u64, bool),
    Restart,
    RestartOne(Member),
}

fn place() -> impl Strategy<Value = Place> {
    (0..8usize, 0..4u8)
}

fn op() -> impl Strategy<Value = Op> {
    let flags = prop_oneof![
        4 => Just(RenameFlags::default()),
        1 => Just(RenameFlags { no_replace: true, exchange: false }),
        2 => Just(RenameFlags { no_replace: false, exchange: true }),
    ];
    prop_oneof![
        5 => (place(), any::<bool>()).prop_map(|(at, dir)| Op::Make(at, dir)),
        2 => (place(), place()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => place().prop_map(Op::Unlink),
        2 => place().prop_map(Op::Rmdir),
        6 => (place(), place(), flags).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => op().prop_map(Event::Op),
        4 => (op(), 0..6u64, any::<bool>()).prop_map(|(op, at, all)| Event::Cut(op, at, all)),
        1 => Just(Event::Restart),
        1 => (0..3u16).prop_map(Event::RestartOne),
    ]
}

/// The plain tree. Inodes are numbers; the root is 0; numbers are never used twice.
#[derive(Clone, Default)]
struct Model {
    dirs: BTreeMap<u32, BTreeMap<u8, u32>>,
    next: u32,
}

impl Model {
    fn new() -> Model {
        Model {
            dirs: BTreeMap::from([(0, BTreeMap::new())]),
            next: 1,
        }
    }
    fn dir(&self, at: usize) -> u32 {
        *self.dirs.keys().nth(at % self.dirs.len()).unwrap()
    }
    fn at(&self, place: Place) -> Option<u32> {
        self.dirs[&self.dir(place.0)].get(&place.1).copied()
    }
    fn set(&mut self, dir: u32, name: u8, to: Option<u32>) {
        let dir = self.dirs.get_mut(&dir).unwrap();
        match to {
            Some(id) => drop(dir.insert(name, id)),
            None => drop(dir.remove(&name)),
        }
    }
    /// Whether directory `inner` is `outer` or lies below it.
    fn within(&self, inner: u32, outer: u32) -> bool {
        inner == outer
            || self.dirs[&outer]
                .values()
                .any(|id| self.dirs.contains_key(id) && self.within(inner, *id))
    }
    fn apply(&mut self, op: &Op) -> Result<(), Errno> {
        match *op {
            Op::Make(at, is_dir) => {
                if self.at(at).is_some() {
                    return Err(Errno::EXIST);
                }
                let id = self.next;
                self.next += 1;
                self.set(self.dir(at.0), at.1, Some(id));
                if is_dir {
                    self.dirs.insert(id, BTreeMap::new());
                }
            }
            Op::Link(from, to) => {
                let id = self.at(from).ok_or(Errno::NOENT)?;
                if self.at(to).is_some() {
                    return Err(Errno::EXIST);
                }
                if self.dirs.contains_key(&id) {
                    return Err(Errno::PERM);
                }
                self.set(self.dir(to.0), to.1, Some(id));
            }
            Op::Unlink(at) => {
                let id = self.at(at).ok_or(Errno::NOENT)?;
                if self.dirs.contains_key(&id) {
                    return Err(Errno::ISDIR);
                }
                self.set(self.dir(at.0), at.1, None);
            }
            Op::Rmdir(at) => {
                let id = self.at(at).ok_or(Errno::NOENT)?;
                if !self.dirs.get(&id).ok_or(Errno::NOTDIR)?.is_empty() {
                    return Err(Errno::NOTEMPTY);
                }
                self.set(self.dir(at.0), at.1, None);
                self.dirs.remove(&id);
            }
            Op::Rename(from, to, flags) => return self.rename(from, to, flags),
        }
        Ok(())
    }
    fn rename(&mut self, from: Place, to: Place, flags: RenameFlags) -> Result<(), Errno> {
        let (source, target) = (self.dir(from.0), self.dir(to.0));
        let moved = self.at(from).ok_or(Errno::NOENT)?;
        let there = self.at(to);
        if there.is_some() && flags.no_replace {
            return Err(Errno::EXIST);
        }
        if there.is_none() && flags.exchange {
            return Err(Errno::NOENT);
        }
        if there == Some(moved) {
            return Ok(());
        }
        let is_dir = |id: &u32| self.dirs.contains_key(id);
        let other = there.filter(|_| flags.exchange);
        if let (Some(there), None) = (there, other) {
            match (is_dir(&moved), is_dir(&there)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ => {}
            }
        }
        if is_dir(&moved) && self.within(target, moved) {
            return Err(Errno::INVAL);
        }
        if other.is_some_and(|other| is_dir(&other) && self.within(source, other)) {
            return Err(Errno::INVAL);
        }
        if let (Some(there), None) = (there, other) {
            if self
                .dirs
                .get(&there)
                .is_some_and(|entries| !entries.is_empty())
            {
                return Err(Errno::NOTEMPTY);
            }
            self.dirs.remove(&there);
        }
        self.set(source, from.1, other);
        self.set(target, to.1, Some(moved));
        Ok(())
    }
    fn paths(&self, dir: u32, path: &str, out: &mut Vec<(String, u32)>) {
        for (name, id) in &self.dirs[&dir] {
            let path = format!("{path}/{name}");
            out.push((path.clone(), *id));
            if self.dirs.contains_key(id) {
                self.paths(*id, &path, out);
            }
        }
    }
    /// As `Net::tree` shows it.
    fn tree(&self) -> BTreeMap<String, (Kind, u32, u32)> {
        let mut paths = Vec::new();
        self.paths(0, "", &mut paths);
        let links = |id: u32| match self.dirs.get(&id) {
            Some(entries) => (
                Kind::Dir,
                2 + entries
                    .values()
                    .filter(|id| self.dirs.contains_key(id))
                    .count() as u32,
            ),
            None => (
                Kind::File,
                paths.iter().filter(|(_, other)| *other == id).count() as u32,
            ),
        };
        paths
            .iter()
            .map(|(path, id)| (path.clone(), (links(*id).0, links(*id).1, *id)))
            .collect()
    }
}

/// Does `op` in the service; directories are found by their path in the model.
fn perform(net: &Net, model: &Model, op: &Op) -> Result<()> {
    let fids = fids(net, model);
    let spot = |place: Place| (fids[&model.dir(place.0)], place.1.to_string());
    match *op {
        Op::Make(at, is_dir) => {
            let (parent, name) = spot(at);
            let new = if is_dir { dir(0o755) } else { file(0o644) };
            net.create_as(
                parent,
                &name,
                new,
                Caller {
                    uid: model.next,
                    gid: 0,
                },
            )
            .map(drop)
        }
        Op::Link(from, to) => {
            let ((from, name), (to, to_name)) = (spot(from), spot(to));
            let fid = net.lookup(from, &name)?.fid;
            net.link(fid, to, &to_name).map(drop)
        }
        Op::Unlink(at) => net.unlink(spot(at).0, &spot(at).1, ROOT),
        Op::Rmdir(at) => net.rmdir(spot(at).0, &spot(at).1),
        Op::Rename(from, to, flags) => {
            let ((from, name), (to, to_name)) = (spot(from), spot(to));
            net.rename((from, &name), (to, &to_name), flags)
        }
    }
}

fn fids(net: &Net, model: &Model) -> BTreeMap<u32, Fid> {
    let mut fids = BTreeMap::from([(0, Fid::ROOT)]);
    let mut paths = Vec::new();
    model.paths(0, "", &mut paths);
    for (path, id) in paths {
        if model.dirs.contains_key(&id) {
            let mut at = Fid::ROOT;
            for name in path.split('/').skip(1) {
                at = net.lookup(at, name).unwrap().fid;
            }
            fids.insert(id, at);
        }
    }
    fids
}

fn play(net: &Arc<Net>, events: &[Event]) {
    let mut model = Model::new();
    for event in events {
        match event {
            Event::Op(op) => {
                let result = perform(net, &model, op).map_err(|e| e.errno());
                assert_eq!(result, model.apply(op), "{op:?}");
            }
            Event::Cut(op, at, all) => {
                net.cut_at(*at, *all);
                let result = perform(net, &model, op);
                net.cut_off();
                net.stopped()
                    .into_iter()
                    .for_each(|member| net.start(member));
                net.recover();
                let mut new = model.clone();
                let expected = new.apply(op);
                let tree = net.tree();
                if tree == new.tree() {
                    model = new;
                } else {
                    assert!(
                        result.is_err() && tree == model.tree(),
                        "{op:?}: {result:?} {expected:?} {tree:#?}"
                    );
                    // The number was perhaps used.
                    model.next = new.next;
                }
            }
            Event::Restart => net.restart(),
            Event::RestartOne(member) => {
                net.stop(*member);
                net.start(*member);
                net.meta(*member).recovery.recover().unwrap();
            }
        }
        assert_eq!(net.tree(), model.tree(), "after {event:?}");
    }
    net.recover();
    assert_eq!(net.check(), vec![]);
}

#[test]
fn histories_agree_with_a_plain_tree() {
    let (cases, length) = forebay_testkit::seeds::count((200, 80), (10_000, 120));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let net = Net::new(3);
    runner
        .run(&proptest::collection::vec(event(), 1..length), |events| {
            net.wipe();
            play(&net, &events);
            Ok(())
        })
        .unwrap();
}

//! Teams over a service in one process: what a call of many clients gives is what each would have got alone.
use crate::backends::{BackendKind, over_both_backends};
use crate::teams::{TeamCluster, all_same};
use forebay_client::{Lamination, OpenOptions, Team, TeamSpec};
use forebay_fabric::ring::topology::fan_in;
use rustix::io::Errno;

over_both_backends![
    every_client_sees_the_same_file,
    a_file_is_made_once_written_by_all_and_closed_by_all,
    the_root_hears_the_logarithm_and_an_owner_once,
    what_one_alone_is_refused_the_team_is,
    some_may_write_and_some_only_read,
    a_file_is_emptied_once_and_keeps_what_is_written_after,
    a_removed_file_lives_until_the_last_client_closes_it_alone,
    a_team_of_some_nodes_works_on_files_of_others,
    a_number_is_used_again_by_other_members_at_once,
    members_that_made_different_numbers_of_calls_hear_what_to_do,
];

fn every_client_sees_the_same_file(kind: BackendKind) {
    for n in 1..=9 {
        let cluster = TeamCluster::new(n, &[3, 1]).over(kind);
        cluster.client(n - 1).create_dir("/d").unwrap();
        cluster.client(0).write("/d/f", b"twelve bytes").unwrap();
        let attrs = cluster.all(|team| {
            let attr = team.stat("/d/f").unwrap();
            (attr.ino(), attr.len())
        });
        assert_eq!(all_same(attrs).1, 12);
        let missing = cluster.all(|team| team.stat("/d/none").unwrap_err().errno());
        assert_eq!(all_same(missing), Errno::NOENT);
        cluster.stop();
    }
}

fn a_file_is_made_once_written_by_all_and_closed_by_all(kind: BackendKind) {
    for n in [1, 2, 3, 5, 9] {
        let cluster = TeamCluster::new(n, &[2, 1]).over(kind);
        let clients = cluster.clients();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o640);
        let seen = cluster.all(|team| {
            let file = team.open("/shared", &options).unwrap();
            let me = team.place();
            file.write_at(&[me as u8 + 1; 10], 10 * me).unwrap();
            let closed = team.close(file).unwrap();
            (closed.ino(), closed.len(), closed.mode())
        });
        let (ino, len, mode) = all_same(seen);
        assert_eq!((len, mode & 0o7777), (10 * clients, 0o640));
        for k in 0..n {
            let client = cluster.client(k);
            assert_eq!(client.metadata("/shared").unwrap().ino(), ino);
            let content = client.read("/shared").unwrap();
            let expected: Vec<u8> = (0..clients).flat_map(|c| [c as u8 + 1; 10]).collect();
            assert_eq!(content, expected, "at node {k} of {n}");
        }
        // Now it is there: for the team as for anyone alone.
        let again = cluster.all(|team| team.open("/shared", &options).err().unwrap().errno());
        assert_eq!(all_same(again), Errno::EXIST);
        cluster.nothing_open();
        cluster.stop();
    }
}

fn the_root_hears_the_logarithm_and_an_owner_once(kind: BackendKind) {
    for n in [2u16, 3, 4, 5, 8, 9, 16] {
        let cluster = TeamCluster::new(n, &[2]).over(kind);
        cluster.client(0).write("/f", b"x").unwrap();
        let values = || -> Vec<u64> {
            let nodes = cluster.service().nodes();
            nodes
                .iter()
                .map(|n| n.collectives.counts().values)
                .collect()
        };
        let before = values();
        cluster.all(|team| {
            let file = team.open("/f", OpenOptions::new().read(true)).unwrap();
            team.stat("/f").unwrap();
            team.close(file).unwrap();
        });
        let heard: Vec<u64> = values().iter().zip(before).map(|(a, b)| a - b).collect();
        let log = u64::from(fan_in(n.into()));
        // The root directory's owner is the root of all three calls.
        assert_eq!(heard[0], 3 * log, "{n} nodes: {heard:?}");
        assert!(heard.iter().all(|h| *h <= 3 * log));
        // Each server but the root sends one message a call: whatever the number of clients.
        assert_eq!(heard.iter().sum::<u64>(), 3 * u64::from(n - 1));
        let calls = cluster.service().status().unwrap();
        assert!(
            calls
                .iter()
                .all(|m| (m.team_calls, m.team_failures) == (3, 0))
        );
        cluster.stop();
    }
}

fn what_one_alone_is_refused_the_team_is(kind: BackendKind) {
    let cluster = TeamCluster::new(3, &[2, 1]).over(kind);
    let owner = cluster.client(0);
    owner.create_dir_all("/a/b").unwrap();
    owner.symlink("f", "/a/link").unwrap();
    owner.write("/a/f", b"content").unwrap();
    let read = OpenOptions::new().read(true).clone();
    let cases: [(&str, Errno); 5] = [
        ("/a/b", Errno::ISDIR),
        ("/a/none", Errno::NOENT),
        ("/a/f/", Errno::NOTDIR),
        ("/a/f/x", Errno::NOTDIR),
        ("", Errno::NOENT),
    ];
    for (path, errno) in cases {
        let alone = owner.open(path).err().unwrap().errno();
        let heard = cluster.all(|team| team.open(path, &read).err().unwrap().errno());
        assert_eq!((all_same(heard), alone), (errno, errno), "{path}");
    }
    let through = cluster.all(|team| {
        let file = team.open("/a/link", &read).unwrap();
        let content = file.read_bytes_at(0, 99).unwrap();
        team.close(file).unwrap();
        content
    });
    assert_eq!(all_same(through), "content");
    // They do not agree, or one asks for what cannot be.
    let heard = cluster.all(|team| {
        let path = if team.place() == 2 { "/a/f" } else { "/a/g" };
        team.stat(path).unwrap_err().errno()
    });
    assert_eq!(all_same(heard), Errno::INVAL);
    let heard = cluster.all(|team| {
        let mut options = OpenOptions::new();
        options.read(team.place() != 1);
        team.open("/a/f", &options).err().unwrap().errno()
    });
    assert_eq!(all_same(heard), Errno::INVAL);
    cluster.nothing_open();
    cluster.stop();
}

fn some_may_write_and_some_only_read(kind: BackendKind) {
    let cluster = TeamCluster::new(3, &[2, 1]).over(kind);
    cluster.client(0).write("/f", b"0123456789").unwrap();
    let options = |place: u64| {
        let mut options = OpenOptions::new();
        options.read(true).write(place.is_multiple_of(2));
        options
    };
    cluster.all(|team| {
        let options = options(team.place());
        let file = team.open("/f", &options).unwrap();
        let written = file.write_at(b"x", 0).map_err(|e| e.errno());
        let expected = if team.place().is_multiple_of(2) {
            Ok(())
        } else {
            Err(Errno::BADF)
        };
        assert_eq!(written, expected);
        team.close(file).unwrap();
    });
    let attr = cluster.client(0).metadata("/f").unwrap();
    assert_eq!(attr.len(), 10);
    cluster
        .service()
        .delegate(0)
        .names
        .laminate(forebay_server::Fid(attr.ino()))
        .unwrap();
    // As if each had asked alone.
    cluster.all(|team| {
        let options = options(team.place());
        match team.open("/f", &options) {
            Ok(file) => {
                assert_eq!(team.place() % 2, 1);
                assert_eq!(file.read_bytes_at(1, 3).unwrap(), "123");
                team.close(file).unwrap();
            }
            Err(e) => {
                assert_eq!((team.place() % 2, e.errno()), (0, Errno::PERM));
                // It takes part in the close, with a file of its own.
                let other = cluster.client(team.node()).open("/f").unwrap();
                team.close(other).unwrap();
            }
        }
    });
    cluster.nothing_open();
    cluster.stop();
}

#[test]
fn what_a_user_may_not_write_is_neither_emptied_nor_opened_for_writing() {
    let cluster = TeamCluster::new(2, &[1, 1]);
    let root = cluster.client(0);
    root.write("/f", b"kept").unwrap();
    root.attributes("/f").set_owner(Some(7), Some(7)).unwrap();
    root.attributes("/f").set_permissions(0o444).unwrap();
    let before = root.metadata("/f").unwrap();
    assert_eq!(before.lamination(), Lamination::ByMode);
    let open = |uid: u32, number: u32| {
        std::thread::scope(|scope| {
            let seats = [0, 1].map(|node| {
                let client = cluster.embedded(node, uid, 7);
                let team = client.team(&client.plan_of_all(number, 1)).unwrap();
                let mut team = Team::from(team.by_mode(Vec::new()));
                scope.spawn(move || {
                    let mut options = OpenOptions::new();
                    options.read(true).write(node == 0).truncate(node == 0);
                    let opened = team.open("/f", &options);
                    opened.map(drop).map_err(|e| e.errno())
                })
            });
            seats.map(|seat| seat.join().unwrap())
        })
    };
    for (number, uid) in (900..).zip([7, 8]) {
        assert_eq!(
            open(uid, number),
            [Err(Errno::ACCESS), Ok(())],
            "user {uid}"
        );
        assert_eq!(root.read("/f").unwrap(), b"kept");
        let now = root.metadata("/f").unwrap();
        assert_eq!(now.lamination(), Lamination::ByMode);
    }
    assert_eq!(open(0, 902), [Ok(()), Ok(())]);
    assert_eq!(root.read("/f").unwrap(), b"");
    cluster.nothing_open();
    cluster.stop();
}

fn a_file_is_emptied_once_and_keeps_what_is_written_after(kind: BackendKind) {
    let cluster = TeamCluster::new(4, &[1, 3]).over(kind);
    cluster.client(3).write("/f", &[9; 5000]).unwrap();
    let clients = cluster.clients();
    cluster.all(|team| {
        let file = team.create("/f").unwrap();
        // At once, while others may still be on their way out of the call.
        file.write_at(&[1; 3], 3 * team.place()).unwrap();
        file.commit().unwrap();
        assert_eq!(team.close(file).unwrap().len(), 3 * clients);
    });
    assert_eq!(
        cluster.client(1).read("/f").unwrap(),
        vec![1; 3 * clients as usize]
    );
    cluster.nothing_open();
    cluster.stop();
}

fn a_removed_file_lives_until_the_last_client_closes_it_alone(kind: BackendKind) {
    let cluster = TeamCluster::new(3, &[2]).over(kind);
    cluster.client(0).write("/f", b"kept").unwrap();
    let turn = std::sync::Barrier::new(6);
    cluster.all(|team| {
        let file = team.open("/f", OpenOptions::new().read(true)).unwrap();
        let mut file = Some(file);
        if turn.wait().is_leader() {
            cluster.client(1).remove_file("/f").unwrap();
        }
        for k in 0..6 {
            turn.wait();
            if let Some(file) = file.take_if(|_| k == team.place()) {
                assert_eq!(file.read_bytes_at(0, 9).unwrap(), "kept");
                // Alone, not with the team.
                file.close().unwrap();
            }
        }
    });
    cluster.nothing_open();
    let stored = cluster.service().status().unwrap();
    assert!(stored.iter().all(|m| m.open_files == 0));
    cluster.stop();
}

fn a_team_of_some_nodes_works_on_files_of_others(kind: BackendKind) {
    let cluster = TeamCluster::new(5, &[1]).over(kind);
    let members = vec![3, 1, 4];
    cluster.client(0).create_dir("/d").unwrap();
    let inodes: Vec<u64> = std::thread::scope(|scope| {
        let client = |node: &u16| {
            let (client, members) = (cluster.client(*node), members.clone());
            scope.spawn(move || {
                let plan = TeamSpec {
                    number: 9,
                    members,
                    here: 1,
                };
                let mut team = client.team(&plan).unwrap();
                let mut inodes = Vec::new();
                for path in ["/one", "/d/two"] {
                    let file = team.create(path).unwrap();
                    file.write_at(b"z", u64::from(plan.number)).unwrap();
                    inodes.push(team.close(file).unwrap().ino());
                }
                inodes
            })
        };
        let threads: Vec<_> = members.iter().map(client).collect();
        all_same(threads.into_iter().map(|t| t.join().unwrap()).collect())
    });
    assert_eq!(
        cluster.client(2).metadata("/d/two").unwrap().ino(),
        inodes[1]
    );
    assert_eq!(cluster.client(0).metadata("/one").unwrap().len(), 10);
    cluster.nothing_open();
    cluster.stop();
}

/// A client of team 9 at each of these nodes, in threads of their own; what they return.
fn nine<T: Send>(
    cluster: &TeamCluster,
    members: &[u16],
    f: impl Fn(u16, &mut forebay_client::Team) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let client = |node: &u16| {
            let (node, f) = (*node, &f);
            let plan = TeamSpec {
                number: 9,
                members: members.to_vec(),
                here: 1,
            };
            let mut team = cluster.client(node).team(&plan).unwrap();
            scope.spawn(move || f(node, &mut team))
        };
        let threads: Vec<_> = members.iter().map(client).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn a_number_is_used_again_by_other_members_at_once(kind: BackendKind) {
    let cluster = TeamCluster::new(4, &[1]).over(kind);
    let mut kept = Vec::new();
    for (k, members) in [
        &[0u16, 1][..],
        &[1, 0, 2],
        &[3, 1],
        &[0, 1],
        &[2],
        &[1, 0, 2],
        &[0, 3],
    ]
    .into_iter()
    .enumerate()
    {
        // Each time to another number of calls, and files stay open from team to team.
        let path = format!("/f{k}");
        let opened = nine(&cluster, members, |_, team| {
            for _ in 0..k {
                team.stat("/").unwrap();
            }
            team.create(&path).unwrap()
        });
        kept.extend(opened);
    }
    cluster.no_failures();
    for file in kept {
        file.write_at(b"x", 0).unwrap();
        file.close().unwrap();
    }
    cluster.nothing_open();
    cluster.stop();
}

fn members_that_made_different_numbers_of_calls_hear_what_to_do(kind: BackendKind) {
    let cluster = TeamCluster::hasty(2, &[1], std::time::Duration::from_secs(1)).over(kind);
    // One stays away from the first call.
    nine(&cluster, &[0, 1], |node, team| {
        if node == 0 {
            assert_eq!(team.stat("/").unwrap_err().errno(), Errno::IO);
        }
    });
    // The number again: the two are at different calls.
    let heard = nine(&cluster, &[0, 1], |node, team| {
        let first = team.stat("/");
        if node == 1 {
            let error = first.unwrap_err();
            assert_eq!(error.errno(), Errno::IO);
            // It has caught up.
            team.stat("/").unwrap();
            return Some(error.to_string());
        }
        first.unwrap();
        None
    });
    let said = heard[1].as_ref().unwrap();
    assert!(said.contains("new") && said.contains("number"), "{said}");
    cluster.stop();
}

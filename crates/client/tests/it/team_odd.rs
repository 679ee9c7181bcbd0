//! What a careless or hostile program asks of a team: odd names, teams that cannot be, very many at once. Each call ends at once,
//! with what one client alone would hear or with a reason.
use crate::backends::{BackendKind, over_both_backends};
use crate::teams::{TeamCluster, all_same};
use forebay_client::{Client, OpenOptions, Team, TeamSpec};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

over_both_backends![
    odd_paths_are_answered_as_one_alone_would_be,
    teams_that_cannot_be_are_refused_with_the_reason,
    a_team_of_one_needs_nobody,
    members_with_lists_of_other_orders_hear_so_at_once,
    very_many_teams_at_once_do_not_get_in_each_others_way,
    members_that_ask_for_different_things_all_fail_and_nothing_is_done,
];

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Paths of which each is trouble for someone.
fn odd() -> Vec<Vec<u8>> {
    let long = |name: usize, depth: usize| -> Vec<u8> {
        let name = [b"/".as_slice(), &vec![b'n'; name]].concat();
        name.repeat(depth)
    };
    let mut paths: Vec<Vec<u8>> = [
        "",
        "/",
        "//",
        ".",
        "..",
        "/.",
        "/..",
        "/d",
        "/d/",
        "/d/.",
        "/d/..",
        "/d/../d/f",
        "//d///f",
        "d/f",
        "/d/./f",
        "/d/f/",
        "/d/f/.",
        "/d/f/..",
        "/d/f/x",
        "/d/loop",
        "/d/loop/x",
        "/d/out",
        "/d/link",
        "/d/link/",
        "/d/to_d/f",
        "/d/to_d/",
        "/d/dangling",
        "/d/dangling/",
        "/d/fifo",
        "/d/new\n",
        "/d/ ",
        "/d/\t\"'\\*?",
        "/d/\u{1F600}",
        "/none/x",
        "/.forebay-teams",
        "/.forebay-teams/x",
        "/d/-",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    paths.extend([
        b"/d/\xff\xfe\x80".to_vec(),
        b"/d/\0".to_vec(),
        b"/d/f\0".to_vec(),
        b"\0".to_vec(),
        long(255, 1),
        long(256, 1),
        long(255, 15),
        long(255, 17),
        b"/d".repeat(3000),
        [b"/d".as_slice(), &b"/.".repeat(5000), b"/f"].concat(),
    ]);
    paths
}

fn furnish(client: &Client) {
    client.create_dir("/d").unwrap();
    client.write("/d/f", b"content").unwrap();
    client.symlink("loop", "/d/loop").unwrap();
    client.symlink("../../..", "/d/out").unwrap();
    client.symlink("f", "/d/link").unwrap();
    client.symlink(".", "/d/to_d").unwrap();
    client.symlink("nothing", "/d/dangling").unwrap();
}

fn ways() -> [OpenOptions; 4] {
    let mut read = OpenOptions::new();
    read.read(true);
    let mut make = OpenOptions::new();
    make.write(true).create(true);
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    let mut none = OpenOptions::new();
    none.create(true);
    [read, make, new, none]
}

fn odd_paths_are_answered_as_one_alone_would_be(kind: BackendKind) {
    // Two services with the same content: what is made in one is not there in the other.
    let (cluster, other) = (
        TeamCluster::new(3, &[2, 1]).over(kind),
        TeamCluster::new(3, &[1]).over(kind),
    );
    furnish(&cluster.client(0));
    furnish(&other.client(0));
    let alone = other.client(1);
    for odd in odd() {
        let shown = String::from_utf8_lossy(&odd[..odd.len().min(60)]).into_owned();
        let expected = alone
            .metadata(path(&odd))
            .map(|m| m.len())
            .map_err(|e| e.errno());
        let heard = cluster.all(|team| {
            let seen = team.stat(path(&odd));
            seen.map(|m| m.len()).map_err(|e| e.errno())
        });
        assert_eq!(all_same(heard), expected, "stat {shown:?}");
        for options in ways() {
            let opened = options.open(&alone, path(&odd));
            let expected = opened.map(|f| f.close().unwrap()).map_err(|e| e.errno());
            let heard = cluster.all(|team| match team.open(path(&odd), &options) {
                Ok(file) => {
                    team.close(file).unwrap();
                    Ok(())
                }
                Err(e) => Err(e.errno()),
            });
            assert_eq!(all_same(heard), expected, "open {shown:?} {options:?}");
        }
    }
    cluster.nothing_open();
    cluster.stop();
    other.stop();
}

fn join(
    cluster: &TeamCluster,
    node: u16,
    number: u32,
    members: &[u16],
    here: u32,
) -> Result<Team, String> {
    let plan = TeamSpec {
        number,
        members: members.to_vec(),
        here,
    };
    cluster.client(node).team(&plan).map_err(|e| e.to_string())
}

fn teams_that_cannot_be_are_refused_with_the_reason(kind: BackendKind) {
    let cluster = TeamCluster::new(3, &[1]).over(kind);
    for (members, here, reason) in [
        (&[0u16, 0][..], 1, "twice"),
        (&[0, 1, 2, 1], 1, "twice"),
        (&[1, 2], 1, "no client at this node"),
        (&[], 1, "no client at this node"),
        (&[0, 1], 0, "no client at this node"),
        (&[0, 3], 1, "no member 3"),
        (&[0, u16::MAX], 1, "no member 65535"),
    ] {
        let said = join(&cluster, 0, 5, members, here).err().unwrap();
        assert!(said.contains(reason), "{members:?}: {said}");
    }
    let said = join(&cluster, 0, u32::MAX, &[0], 1).err().unwrap();
    assert!(said.contains("highest number"), "{said}");
    // Nothing is left of them: the number is free.
    let mut alone = join(&cluster, 0, 5, &[0], 1).unwrap();
    assert!(alone.stat("/").is_ok());
    cluster.stop();
}

fn a_team_of_one_needs_nobody(kind: BackendKind) {
    let cluster = TeamCluster::new(3, &[1]).over(kind);
    let before: u64 = cluster
        .service()
        .nodes()
        .iter()
        .map(|n| n.collectives.counts().values)
        .sum();
    for node in 0..3 {
        let mut team = join(&cluster, node, 5, &[node], 1).unwrap();
        let file = team.create("/alone").unwrap();
        file.write_at(b"x", u64::from(node)).unwrap();
        assert_eq!(team.close(file).unwrap().len(), 1 + u64::from(node));
        assert_eq!(team.stat("/alone").unwrap().len(), 1 + u64::from(node));
    }
    let after: u64 = cluster
        .service()
        .nodes()
        .iter()
        .map(|n| n.collectives.counts().values)
        .sum();
    assert_eq!(after, before);
    cluster.nothing_open();
    cluster.stop();
}

fn members_with_lists_of_other_orders_hear_so_at_once(kind: BackendKind) {
    // The deadline is far longer than a test may take.
    let cluster = TeamCluster::new(3, &[1]).over(kind);
    let lists = [[0u16, 1, 2], [0, 1, 2], [2, 1, 0]];
    let heard = std::thread::scope(|scope| {
        let seats = [0, 1, 2].map(|node: u16| {
            let mut team = join(&cluster, node, 5, &lists[usize::from(node)], 1).unwrap();
            scope.spawn(move || team.stat("/").map(|_| ()).map_err(|e| e.to_string()))
        });
        seats.map(|seat| seat.join().unwrap())
    });
    for said in heard {
        let said = said.unwrap_err();
        assert!(said.contains("another idea of the group"), "{said}");
    }
    cluster.stop();
}

fn very_many_teams_at_once_do_not_get_in_each_others_way(kind: BackendKind) {
    let teams = forebay_testkit::seeds::count(60, 400);
    let cluster = TeamCluster::new(4, &[1]).over(kind);
    cluster.client(0).create_dir("/d").unwrap();
    std::thread::scope(|scope| {
        for number in 0..teams {
            // Other members each time.
            let members: Vec<u16> = (0..4)
                .filter(|m| (number + 1) >> m & 1 != 0 || number % 4 == u32::from(*m))
                .collect();
            for node in &members {
                let mut team = join(&cluster, *node, number, &members, 1).unwrap();
                let all = members.len() as u64;
                let place = members.iter().position(|m| m == node).unwrap() as u64;
                scope.spawn(move || {
                    let name = format!("/d/{number}");
                    let file = team.create(&name).unwrap();
                    file.write_at(&[1], place).unwrap();
                    assert_eq!(team.close(file).unwrap().len(), all);
                    assert_eq!(team.stat(&name).unwrap().len(), all);
                });
            }
        }
    });
    cluster.no_failures();
    cluster.nothing_open();
    cluster.stop();
}

fn members_that_ask_for_different_things_all_fail_and_nothing_is_done(kind: BackendKind) {
    let cluster = TeamCluster::hasty(4, &[1], std::time::Duration::from_millis(200)).over(kind);
    let client = cluster.client(0);
    for k in 0..4 {
        client.create_dir(format!("/d{k}")).unwrap();
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    for odd_one in 0..4 {
        for k in 1..4 {
            let heard = cluster.all(|team| {
                let dir = if team.place() == odd_one { k } else { 0 };
                let opened = team.open(format!("/d{dir}/f"), &options);
                opened.map(|_| ()).unwrap_err().errno()
            });
            // Where they agree on the root they hear that they do not ask the same; else that someone is missing.
            let known = |e: &Errno| matches!(*e, Errno::INVAL | Errno::IO);
            assert!(heard.iter().all(known), "{heard:?}");
        }
    }
    // Nobody's handle is the one that the name would go with.
    let temporary = options.clone().temporary(true).clone();
    let heard = cluster.all(|team| {
        team.open("/d0/f", &temporary)
            .map(drop)
            .unwrap_err()
            .errno()
    });
    assert!(heard.iter().all(|e| *e == Errno::INVAL), "{heard:?}");
    for k in 0..4 {
        assert!(!client.exists(format!("/d{k}/f")));
    }
    cluster.nothing_open();
    cluster.stop();
}

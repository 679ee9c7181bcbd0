//! Teams asked for through a mount, by users who may not do everything: the directories on the way count, as for the kernel.
use crate::teams::{TeamCluster, all_same};
use forebay_client::{Client, OpenOptions, Team};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// A user with groups beyond the first.
type User = (u32, u32, &'static [u32]);

const OWNER: User = (7, 7, &[]);
const OTHER: User = (8, 8, &[]);
const ROOT: User = (0, 0, &[]);

struct UserTeams {
    cluster: TeamCluster,
    root: Client,
    numbers: AtomicU32,
}

impl UserTeams {
    fn new() -> UserTeams {
        let cluster = TeamCluster::new(2, &[1, 1]);
        let root = cluster.client(0);
        let numbers = AtomicU32::new(900);
        root.attributes("/").set_permissions(0o755).unwrap();
        UserTeams {
            cluster,
            root,
            numbers,
        }
    }

    /// A directory of user 7 with a file that all may write.
    fn directory(&self, path: &str, mode: u32, group: u32) {
        self.root.create_dir(path).unwrap();
        let file = format!("{path}/f");
        self.root.write(&file, b"kept").unwrap();
        self.root.attributes(&file).set_permissions(0o666).unwrap();
        self.root
            .attributes(path)
            .set_owner(Some(7), Some(group))
            .unwrap();
        self.root.attributes(path).set_permissions(mode).unwrap();
    }

    /// What both of a team of these users get.
    fn each(&self, users: [User; 2], f: impl Fn(&mut Team) -> Result<(), Errno> + Sync) -> Got {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let seats = std::thread::scope(|scope| {
            let seats = [0, 1].map(|node: u16| {
                let (uid, gid, groups) = users[usize::from(node)];
                let client = self.cluster.embedded(node, uid, gid);
                let team = client.team(&client.plan_of_all(number, 1)).unwrap();
                let (mut team, f) = (Team::from(team.by_mode(groups.to_vec())), &f);
                scope.spawn(move || f(&mut team))
            });
            seats.map(|seat| seat.join().unwrap())
        });
        all_same(seats.into())
    }

    fn stat(&self, user: User, path: &str) -> Got {
        self.each([user; 2], |team| stat(team, path))
    }

    fn create(&self, user: User, path: &str) -> Got {
        self.each([user; 2], |team| create(team, path, false))
    }

    fn create_new(&self, user: User, path: &str) -> Got {
        self.each([user; 2], |team| create(team, path, true))
    }

    fn end(self) {
        self.cluster.nothing_open();
        self.cluster.stop();
    }
}

type Got = Result<(), Errno>;

const REFUSED: Got = Err(Errno::ACCESS);

fn stat(team: &mut Team, path: &str) -> Got {
    team.stat(path).map(drop).map_err(|e| e.errno())
}

fn create(team: &mut Team, path: &str, new: bool) -> Got {
    let mut options = OpenOptions::new();
    options.write(true).create(true).create_new(new);
    let opened = team.open(path, &options);
    opened.map(drop).map_err(|e| e.errno())
}

#[test]
fn a_closed_directory_is_neither_looked_through_nor_written_to() {
    let user_teams = UserTeams::new();
    user_teams.directory("/d", 0o700, 7);
    user_teams.root.symlink("d/f", "/link").unwrap();
    assert_eq!(user_teams.stat(OTHER, "/d"), Ok(()));
    for path in ["/d/f", "/d/none", "/d/.", "/d/..", "/d/../d", "/link"] {
        assert_eq!(user_teams.stat(OTHER, path), REFUSED, "{path}");
        assert_eq!(
            user_teams.stat(OWNER, path).is_ok(),
            path != "/d/none",
            "{path}"
        );
    }
    for path in ["/d/f", "/d/new", "/link"] {
        assert_eq!(user_teams.create(OTHER, path), REFUSED, "{path}");
    }
    assert_eq!(user_teams.create_new(OTHER, "/d/new"), REFUSED);
    // Not even their names are told apart.
    assert_eq!(user_teams.create_new(OTHER, "/d/f"), REFUSED);
    assert!(user_teams.root.metadata("/d/new").is_err());
    assert_eq!(user_teams.create_new(OWNER, "/d/new"), Ok(()));
    assert_eq!(user_teams.root.metadata("/d/new").unwrap().uid(), 7);
    assert_eq!(user_teams.create_new(ROOT, "/d/roots"), Ok(()));
    assert_eq!(user_teams.stat(ROOT, "/d/f"), Ok(()));
    // The root directory is root's.
    assert_eq!(user_teams.create_new(OTHER, "/new"), REFUSED);
    assert!(user_teams.root.metadata("/new").is_err());
    user_teams.end();
}

#[test]
fn who_may_look_may_not_create() {
    let user_teams = UserTeams::new();
    user_teams.directory("/seen", 0o711, 7);
    assert_eq!(user_teams.stat(OTHER, "/seen/f"), Ok(()));
    assert_eq!(user_teams.create(OTHER, "/seen/f"), Ok(()));
    assert_eq!(user_teams.create_new(OTHER, "/seen/f"), Err(Errno::EXIST));
    assert_eq!(user_teams.create(OTHER, "/seen/new"), REFUSED);
    assert!(user_teams.root.metadata("/seen/new").is_err());
    // Writable, but nobody but its owner gets through.
    user_teams.directory("/blind", 0o722, 7);
    assert_eq!(user_teams.create(OTHER, "/blind/new"), REFUSED);
    user_teams.directory("/free", 0o777, 7);
    assert_eq!(user_teams.create_new(OTHER, "/free/new"), Ok(()));
    user_teams.end();
}

#[test]
fn all_groups_of_a_user_count_and_every_user_of_the_team() {
    let user_teams = UserTeams::new();
    user_teams.directory("/of-nine", 0o770, 9);
    user_teams.directory("/not-nine", 0o707, 9);
    let (first, more): (User, User) = ((8, 9, &[]), (8, 8, &[3, 9]));
    for (user, inside) in [(OTHER, false), (first, true), (more, true)] {
        let told = |may| if may { Ok(()) } else { REFUSED };
        assert_eq!(
            user_teams.stat(user, "/of-nine/f"),
            told(inside),
            "{user:?}"
        );
        assert_eq!(
            user_teams.stat(user, "/not-nine/f"),
            told(!inside),
            "{user:?}"
        );
        let new = format!("/of-nine/{}", user.1);
        let made = user_teams.create(user, &new);
        assert_eq!(made, told(inside), "{user:?}");
    }
    for users in [[OTHER, more], [more, OTHER]] {
        for path in ["/of-nine/f", "/not-nine/f"] {
            assert_eq!(user_teams.each(users, |team| stat(team, path)), REFUSED);
        }
    }
    for users in [[ROOT, more], [more, ROOT]] {
        let got = |path: &'static str| user_teams.each(users, move |team| stat(team, path));
        assert_eq!((got("/of-nine/f"), got("/not-nine/f")), (Ok(()), REFUSED));
    }
    // A file of the group: it is emptied for the group only.
    user_teams.root.write("/file", b"kept").unwrap();
    user_teams
        .root
        .attributes("/file")
        .set_owner(Some(7), Some(9))
        .unwrap();
    user_teams
        .root
        .attributes("/file")
        .set_permissions(0o664)
        .unwrap();
    let empty = |user| {
        user_teams.each([user; 2], |team| {
            team.create("/file").map(drop).map_err(|e| e.errno())
        })
    };
    assert_eq!(empty(OTHER), REFUSED);
    assert_eq!(user_teams.root.read("/file").unwrap(), b"kept");
    assert_eq!(empty(more), Ok(()));
    assert_eq!(user_teams.root.read("/file").unwrap(), b"");
    user_teams.end();
}

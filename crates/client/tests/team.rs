//! Teams over a service in one process: what a call of many clients gives is what each would have got alone.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod teams;
use forebay_client::OpenOptions;
use rustix::io::Errno;
use teams::{Crew, all_same};

#[test]
fn every_client_sees_the_same_file() {
    for n in 1..=9 {
        let crew = Crew::new(n, &[3, 1]);
        crew.client(n - 1).create_dir("/d").unwrap();
        crew.client(0).write("/d/f", b"twelve bytes").unwrap();
        let attrs = crew.all(|team| {
            let attr = team.stat("/d/f").unwrap();
            (attr.ino(), attr.len())
        });
        assert_eq!(all_same(attrs).1, 12);
        let missing = crew.all(|team| team.stat("/d/none").unwrap_err().errno());
        assert_eq!(all_same(missing), Errno::NOENT);
        crew.stop();
    }
}

#[test]
fn a_file_is_made_once_written_by_all_and_closed_by_all() {
    for n in [1, 2, 3, 5, 9] {
        let crew = Crew::new(n, &[2, 1]);
        let clients = crew.clients();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o640);
        let seen = crew.all(|team| {
            let file = team.open("/shared", &options).unwrap();
            let me = team.place();
            file.write_at(&[me as u8 + 1; 10], 10 * me).unwrap();
            let closed = team.close(file).unwrap();
            (closed.ino(), closed.len(), closed.mode())
        });
        let (ino, len, mode) = all_same(seen);
        assert_eq!((len, mode & 0o7777), (10 * clients, 0o640));
        for k in 0..n {
            let client = crew.client(k);
            assert_eq!(client.metadata("/shared").unwrap().ino(), ino);
            let content = client.read("/shared").unwrap();
            let expected: Vec<u8> = (0..clients).flat_map(|c| [c as u8 + 1; 10]).collect();
            assert_eq!(content, expected, "at node {k} of {n}");
        }
        // Now it is there: for the team as for anyone alone.
        let again = crew.all(|team| team.open("/shared", &options).err().unwrap().errno());
        assert_eq!(all_same(again), Errno::EXIST);
        crew.nothing_open();
        crew.stop();
    }
}

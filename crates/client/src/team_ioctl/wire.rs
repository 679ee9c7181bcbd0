//! The messages of an `ioctl` between a process and its node's server: request and reply, one buffer each. Numbers
//! are little-endian. Both sides are on one machine, so there is no checksum.
//!
//! ```text
//! request                                            answer
//!  0  4  "FTEA"                                        0  4  "FTEA"
//!  4  1  version, 1                                    4  1  version, 1
//!  5  1  1 join  2 stat  3 open  4 close               5  1  as asked
//!  6  2  length of the path, or bytes of members       6  2  0
//!  8  4  join: the team's number                       8  8  inode         16  8  size
//! 12  4  join: its clients at this node               24  8  mtime, seconds, may be negative
//! 16  4  open: 1 read  2 write  4 append  8 truncate  32  4  mtime, nanoseconds
//!           16 create  32 create_new                  36  4  permission and set-id bits
//! 20  4  open: permission bits of a new file          40  4  user    44  4  group    48  4  links
//! 24  8  close: the inode                             52  4  1 file  2 directory  3 link  4 FIFO  5 socket
//! 32  …  path; join: members, 2 bytes each, none: all 56  8  generation
//! ```
//!
//! After an open, the file is at the name that [`grant`] says, in the directory of teams, once, for the thread that asked.

use crate::OpenOptions;
use bytes::{Buf, BufMut};

/// The directory of teams, in the root of a mount: the server answers for it alone. It is not listed.
pub const DIRECTORY: &str = ".forebay-teams";
/// Length of a request's head.
pub const REQUEST_HEAD_BYTES: usize = 32;
/// Longest path, and the bytes of both buffers: the longest that a request of this kind may have is 16 KiB.
pub const MAX_BODY_BYTES: usize = 4096;
/// Length of both buffers.
pub const BUFFER_BYTES: usize = REQUEST_HEAD_BYTES + MAX_BODY_BYTES;
/// Length of an answer.
pub const ANSWER_BYTES: usize = 64;
/// `_IOWR('F', 0x54, [u8; BUFFER_BYTES])`: in and out, by the size, of Forebay's teams.
pub const COMMAND: u32 = 3 << 30 | (BUFFER_BYTES as u32) << 16 | 0x46 << 8 | 0x54;

const MAGIC: &[u8; 4] = b"FTEA";
const VERSION: u8 = 1;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TeamOp {
    /// Join a team.
    Join {
        /// Of this team.
        number: u32,
        /// Number of its clients at this node.
        here: u32,
        /// Nodes with its clients; empty: all.
        members: Vec<u16>,
    },
    /// Attributes.
    Stat {
        /// From the root of the file system.
        path: Vec<u8>,
    },
    /// A handle.
    Open {
        /// From the root of the file system.
        path: Vec<u8>,
        /// How; for all ranks alike but for what each wants to do with it.
        options: OpenOptions,
    },
    /// The end of a handle.
    Close {
        /// On this file.
        ino: u64,
    },
}

/// The name in [`DIRECTORY`] at which an opened file is.
pub fn grant(ino: u64) -> String {
    format!("{ino:016x}")
}

impl TeamOp {
    fn code(&self) -> u8 {
        match self {
            TeamOp::Join { .. } => 1,
            TeamOp::Stat { .. } => 2,
            TeamOp::Open { .. } => 3,
            TeamOp::Close { .. } => 4,
        }
    }

    /// The request. `None`: too long.
    pub fn encode(&self) -> Option<Box<[u8; BUFFER_BYTES]>> {
        let (mut numbers, mut ino, mut rest) = ([0u32; 4], 0u64, Vec::new());
        match self {
            TeamOp::Join {
                number,
                here,
                members,
            } => {
                numbers[..2].copy_from_slice(&[*number, *here]);
                rest = members.iter().flat_map(|m| m.to_le_bytes()).collect();
            }
            TeamOp::Stat { path } => rest.clone_from(path),
            TeamOp::Open { path, options } => {
                numbers[2..].copy_from_slice(&[options.bits(), options.mode]);
                rest.clone_from(path);
            }
            TeamOp::Close { ino: file } => ino = *file,
        }
        let mut buffer = Box::new([0; BUFFER_BYTES]);
        let (mut head, body) = buffer.split_at_mut(REQUEST_HEAD_BYTES);
        body.get_mut(..rest.len())?.copy_from_slice(&rest);
        head.put_slice(MAGIC);
        head.put_slice(&[VERSION, self.code()]);
        head.put_u16_le(rest.len() as u16);
        for number in numbers {
            head.put_u32_le(number);
        }
        head.put_u64_le(ino);
        Some(buffer)
    }

    /// `None` if it is none of this version.
    pub fn decode(buffer: &[u8]) -> Option<TeamOp> {
        let (head, body) = buffer.split_at_checked(REQUEST_HEAD_BYTES)?;
        let mut head = head.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
        let (code, len) = (head.get_u8(), head.get_u16_le());
        let [number, here, flags, mode] = [(); 4].map(|()| head.get_u32_le());
        let rest = body.get(..usize::from(len))?;
        Some(match code {
            1 if rest.len().is_multiple_of(2) => TeamOp::Join {
                number,
                here,
                members: rest
                    .chunks_exact(2)
                    .map(|two| u16::from_le_bytes([two[0], two[1]]))
                    .collect(),
            },
            2 => TeamOp::Stat {
                path: rest.to_vec(),
            },
            3 => TeamOp::Open {
                path: rest.to_vec(),
                options: OpenOptions::from_bits(flags, mode),
            },
            4 => TeamOp::Close {
                ino: head.get_u64_le(),
            },
            _ => return None,
        })
    }
}

/// What a file is, in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileAttributes {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content: seconds since 1970 and nanoseconds.
    pub mtime: (i64, u32),
    /// Permission and set-id bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// As in the answer's grid; 0: not said.
    pub kind: u32,
    /// Grows with every published change of the content.
    pub generation: u64,
}

impl FileAttributes {
    /// The answer to `op`.
    pub fn encode(&self, op: &TeamOp) -> [u8; ANSWER_BYTES] {
        let mut buffer = [0; ANSWER_BYTES];
        let mut answer = &mut buffer[..];
        answer.put_slice(MAGIC);
        answer.put_slice(&[VERSION, op.code(), 0, 0]);
        answer.put_u64_le(self.ino);
        answer.put_u64_le(self.size);
        answer.put_i64_le(self.mtime.0);
        answer.put_u32_le(self.mtime.1);
        answer.put_u32_le(self.mode);
        answer.put_u32_le(self.uid);
        answer.put_u32_le(self.gid);
        answer.put_u32_le(self.nlink);
        answer.put_u32_le(self.kind);
        answer.put_u64_le(self.generation);
        buffer
    }

    /// `None` if it is no answer to `op` of this version.
    pub fn decode(buffer: &[u8], op: &TeamOp) -> Option<FileAttributes> {
        let answer = buffer.get(..ANSWER_BYTES)?.strip_prefix(MAGIC)?;
        let mut answer = answer.strip_prefix(&[VERSION, op.code()])?.get(2..)?;
        Some(FileAttributes {
            ino: answer.get_u64_le(),
            size: answer.get_u64_le(),
            mtime: (answer.get_i64_le(), answer.get_u32_le()),
            mode: answer.get_u32_le(),
            uid: answer.get_u32_le(),
            gid: answer.get_u32_le(),
            nlink: answer.get_u32_le(),
            kind: answer.get_u32_le(),
            generation: answer.get_u64_le(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::mutation::fuzz;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..40)
    }

    fn ops() -> impl Strategy<Value = TeamOp> {
        let members = proptest::collection::vec(any::<u16>(), 0..20);
        prop_oneof![
            (any::<[u32; 2]>(), members).prop_map(|([number, here], members)| TeamOp::Join {
                number,
                here,
                members
            }),
            bytes().prop_map(|path| TeamOp::Stat { path }),
            (bytes(), any::<[u32; 2]>()).prop_map(|(path, [flags, mode])| TeamOp::Open {
                path,
                options: OpenOptions::from_bits(flags, mode),
            }),
            any::<u64>().prop_map(|ino| TeamOp::Close { ino }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_asked_and_answered_is_read(op in ops(), wide in any::<[u64; 3]>(), narrow in any::<[u32; 6]>()) {
            let request = op.encode().unwrap();
            prop_assert_eq!(TeamOp::decode(&request[..]), Some(op.clone()));
            let shown = FileAttributes {
                ino: wide[0],
                size: wide[1],
                mtime: (wide[2] as i64, narrow[0]),
                mode: narrow[1],
                uid: narrow[2],
                gid: narrow[3],
                nlink: narrow[4],
                kind: narrow[5],
                generation: wide[0] ^ wide[1],
            };
            prop_assert_eq!(FileAttributes::decode(&shown.encode(&op), &op), Some(shown));
        }

        #[test]
        fn other_bytes_are_refused_or_read_never_worse(mut bytes in bytes(), code in 0u8..6) {
            if bytes.len() > 6 {
                bytes[..5].copy_from_slice(b"FTEA\x01");
                bytes[5] = code;
            }
            if let Some(op) = TeamOp::decode(&bytes) {
                prop_assert_eq!(TeamOp::decode(&op.encode().unwrap()[..]), Some(op));
            }
        }
    }

    #[test]
    fn paths_of_the_longest_length_fit_and_no_longer_ones() {
        let path = |len| TeamOp::Stat {
            path: vec![b'x'; len],
        };
        assert!(path(MAX_BODY_BYTES).encode().is_some());
        assert!(path(MAX_BODY_BYTES + 1).encode().is_none());
    }

    /// As the fuzzers of other wires, though this one does not leave the node.
    #[test]
    fn mutated_requests_and_answers_are_refused_or_read() {
        let join = |members: Vec<u16>| TeamOp::Join {
            number: 7,
            here: 2,
            members,
        };
        let path = || b"/a/path".to_vec();
        let ops = [
            join((0..300).collect()),
            join(vec![]),
            TeamOp::Stat { path: path() },
            TeamOp::Open {
                path: path(),
                options: OpenOptions::new().read(true).create(true).clone(),
            },
            TeamOp::Close { ino: 1 << 50 },
        ];
        let shown = FileAttributes {
            ino: 7,
            mtime: (-1, 5),
            ..FileAttributes::default()
        };
        let heads = ops.iter().map(|op| op.encode().unwrap()[..400].to_vec());
        let corpus: Vec<Vec<u8>> = heads
            .chain(ops.iter().map(|op| shown.encode(op).to_vec()))
            .collect();
        fuzz("requests of jobs", 30_000, &corpus, |_, _, bytes| {
            if let Some(op) = TeamOp::decode(&bytes) {
                assert_eq!(TeamOp::decode(&op.encode().unwrap()[..]), Some(op));
            }
            for op in &ops {
                if let Some(shown) = FileAttributes::decode(&bytes, op) {
                    assert_eq!(FileAttributes::decode(&shown.encode(op), op), Some(shown));
                }
            }
        });
    }
}

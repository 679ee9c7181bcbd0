//! The client library as a target of a replay: one client a node, no mounts.
use forebay_client::{Client, File, OpenOptions};
use forebay_server::Service;
use forebay_trace::replay::Target;
use std::io;
use std::path::Path;

/// The clients of a service in this process.
pub struct LibraryTarget {
    clients: Vec<Client>,
}

impl LibraryTarget {
    /// One client for each of the service's `nodes`.
    pub fn new(service: &Service, nodes: u16) -> LibraryTarget {
        LibraryTarget {
            clients: (0..nodes)
                .map(|node| Client::new(service.delegate(node)))
                .collect(),
        }
    }

    fn open_with(&self, node: u32, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        let client = &self.clients[node as usize % self.clients.len()];
        let path = Path::new("/").join(name);
        Ok(options.read(true).write(true).open(client, path)?)
    }
}

impl Target for LibraryTarget {
    type Handle = File;

    fn nodes(&self) -> u32 {
        self.clients.len() as u32
    }

    fn create(&self, node: u32, name: &str) -> io::Result<File> {
        self.open_with(node, name, OpenOptions::new().create(true).truncate(true))
    }

    fn open(&self, node: u32, name: &str) -> io::Result<File> {
        self.open_with(node, name, &mut OpenOptions::new())
    }

    fn read(&self, file: &mut File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(file.read_at(buf, offset)?)
    }

    fn write(&self, file: &mut File, offset: u64, buf: &[u8]) -> io::Result<()> {
        Ok(file.write_at(buf, offset)?)
    }

    fn set_len(&self, file: &mut File, len: u64) -> io::Result<()> {
        Ok(file.set_len(len)?)
    }

    fn len(&self, file: &mut File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn fsync(&self, file: &mut File) -> io::Result<()> {
        Ok(file.commit()?)
    }

    fn close(&self, file: File) -> io::Result<()> {
        Ok(file.close()?)
    }
}

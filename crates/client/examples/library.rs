//! Writes one shared file through two nodes and reads it back through a third: `cargo run --example library`.
use forebay_client::{Client, OpenOptions};
use forebay_server::{Config, Service};
use forebay_storage::OsIo;
use std::error::Error;
use std::sync::Arc;

const RECORD: usize = 4096;
const RECORDS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let service = Service::start(
        Arc::new(OsIo),
        &dir.path().join("store"),
        Config {
            nodes: 3,
            ..Config::default()
        },
    )?;
    let nodes: Vec<Client> = (0..3).map(|n| Client::new(service.delegate(n))).collect();

    nodes[0].create_dir_all("/run/1")?;
    nodes[0].create("/run/1/shared")?.close()?;
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let writers: Vec<_> = (0..2)
            .map(|n| (n, nodes[n].clone()))
            .map(|(n, node)| scope.spawn(move || write(&node, n)))
            .collect();
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })?;

    let content = nodes[2].read("/run/1/shared")?;
    for (i, record) in content.chunks(RECORD).enumerate() {
        assert!(
            record.iter().all(|b| usize::from(*b) == i % 2 + 1),
            "record {i} is not what node {} wrote",
            i % 2
        );
    }
    assert_eq!(content.len(), RECORD * RECORDS);
    println!(
        "{} bytes written by two nodes, read by a third",
        content.len()
    );
    service.stop()?;
    Ok(())
}

/// Node `n` writes every second record, and commits at the end.
fn write(node: &Client, n: usize) -> Result<(), forebay_client::Error> {
    let file = OpenOptions::new().write(true).open(node, "/run/1/shared")?;
    for i in (n..RECORDS).step_by(2) {
        file.write_at(&[n as u8 + 1; RECORD], (i * RECORD) as u64)?;
    }
    file.commit()?;
    file.close()
}

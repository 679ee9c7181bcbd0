//! The ranks of a job write one shared file: made, opened, closed and looked at by all together. Each rank writes its part.
//!
//! ```sh
//! cargo build --release -p forebay-client --example shared_file     # target/release/examples/shared_file
//! forebay run --store ~/store --mount ~/fb -- mpirun -n 16 shared_file /results
//! ```
//!
//! Without `mpirun` or `srun`, say how many ranks this machine has and which this one is: `FOREBAY_LOCAL_RANKS=1
//! FOREBAY_LOCAL_RANK=0`.
use forebay_client::OpenOptions;
use forebay_client::team_ioctl::RankTeam;
use std::os::unix::fs::FileExt;

/// Bytes of each rank.
const PART: u64 = 1 << 20;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/shared".into());
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let ranks = [
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
        "FOREBAY_LOCAL_RANK",
    ];
    let rank = ranks.iter().find_map(|name| number(name)).unwrap_or(0);

    let mut team = RankTeam::of_job()?;
    let file = team.open(
        &path,
        OpenOptions::new().write(true).create(true).truncate(true),
    )?;
    file.write_all_at(&vec![rank as u8; PART as usize], rank * PART)?;
    // From here on every rank sees what all have written.
    let closed = team.close(file)?;
    println!("rank {rank}: {path} has {} bytes", closed.size);

    let file = team.open(&path, OpenOptions::new().read(true))?;
    let mut first = [0];
    file.read_exact_at(&mut first, closed.size - PART)?;
    println!("rank {rank}: the last part is rank {}'s", first[0]);
    team.close(file)?;
    Ok(())
}

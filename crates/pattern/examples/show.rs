//! What a rank of BTIO writes, as patterns: `cargo run -p forebay-pattern --example show [RANK]`.
use forebay_pattern::Folder;

fn main() {
    let (q, grid, dumps) = (8u64, 162, 5);
    let rank: u64 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(9);
    let edge = |at: u64| {
        let (size, larger) = (grid / q, grid % q);
        (at * size + at.min(larger), size + u64::from(at < larger))
    };
    let mut folder = Folder::joining();
    for (dump, layer) in (0..dumps).flat_map(|d| (0..q).map(move |l| (d, l))) {
        let (cx, cy) = ((rank % q + layer) % q, (rank / q + q - layer) % q);
        let ((x, width), (y, height), (z, depth)) = (edge(cx), edge(cy), edge(layer));
        for row in 0..height * depth {
            let (y, z) = (y + row % height, z + row / height);
            folder
                .push((((dump * grid + z) * grid + y) * grid + x) * 40, width * 40)
                .expect("small");
        }
    }
    for pattern in folder.finish() {
        println!("{pattern}");
    }
}

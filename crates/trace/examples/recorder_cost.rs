//! What recording costs a call: nanoseconds of the thread that makes it, and bytes of the trace.
//!
//! `cargo run --release -p forebay-trace --example recorder_cost [THREADS]`

use forebay_trace::Action;
use forebay_trace::record::{ObservedCall, Recorder, RecorderOptions, clock};
use std::time::Instant;

const CALLS: u64 = 2_000_000;

fn main() -> std::io::Result<()> {
    let threads: u32 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let directory = std::env::temp_dir().join(format!("recorder-cost-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let path = directory.join("trace");
    let setup = RecorderOptions {
        name: "cost".into(),
        begun: clock(),
        threads: true,
        host: "here".into(),
    };
    let recorder = Recorder::start(&path, &setup)?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let recorder = &recorder;
            scope.spawn(move || {
                for i in 0..CALLS {
                    let start = recorder.now();
                    recorder.call(&ObservedCall {
                        thread: (1 << 30) + thread,
                        action: Action::Write,
                        inode: 7 + u64::from(thread),
                        handle: 1,
                        offset: (i * u64::from(threads) + u64::from(thread)) * 4096,
                        len: 4096,
                        start,
                        end: recorder.now(),
                        error: 0,
                    });
                }
            });
        }
    });
    let each = begun.elapsed().as_nanos() as f64 / CALLS as f64;
    let calls = recorder.finish()?;
    let bytes = std::fs::metadata(&path)?.len();
    std::fs::remove_dir_all(&directory)?;
    println!(
        "{threads} threads, {calls} calls: {each:.0} ns a call of a thread, {:.1} bytes a call",
        bytes as f64 / calls as f64
    );
    Ok(())
}

//! Starts this program under the `mpirun` of the MPI library it was built for.

use parking_lot::Mutex;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the scenario to the ranks.
pub const SCENARIO: &str = "FOREBAY_MPI_SCENARIO";
/// Longer than any scenario takes on the slowest machine.
const LONG: Duration = Duration::from_secs(150);

/// One job at a time: the machine has few cores, and some scenarios measure.
static ONE_JOB: Mutex<()> = Mutex::new(());

pub struct Launch {
    scenario: &'static str,
    ranks: u32,
    recovery: bool,
}

impl Launch {
    pub fn new(scenario: &'static str, ranks: u32) -> Launch {
        Launch {
            scenario,
            ranks,
            recovery: false,
        }
    }

    /// The job goes on when a rank dies.
    pub fn with_recovery(mut self) -> Launch {
        self.recovery = true;
        self
    }

    /// Runs the scenario; all ranks must end well. What they said; nothing if there is no MPI to run.
    pub fn succeeds(self) -> String {
        let Some((said, ok)) = self.run() else {
            return String::new();
        };
        assert!(ok, "a rank failed:\n{said}");
        print!("{said}");
        said
    }

    /// What the ranks said, and whether all ended well. `None` if there is no MPI to run.
    pub fn output(self) -> Option<(String, bool)> {
        let output = self.run()?;
        print!("{}", output.0);
        Some(output)
    }

    fn run(self) -> Option<(String, bool)> {
        let _one = ONE_JOB.lock();
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let required = std::env::var_os("FOREBAY_REQUIRE_MPI").is_some();
                assert!(!required, "{command:?}: {error}");
                println!("skipped: {command:?}: {error}");
                return None;
            }
        };
        Some(wait(child))
    }

    fn command(&self) -> Command {
        let library = forebay_mpi::library();
        let open = library.contains("Open MPI");
        let name = if open {
            "mpirun.openmpi"
        } else {
            "mpirun.mpich"
        };
        let chosen = std::env::var("FOREBAY_MPIRUN").unwrap_or_else(|_| name.into());
        let mut command = Command::new(chosen);
        if open {
            command.args(["--oversubscribe", "--allow-run-as-root"]);
            if self.recovery {
                command.arg("--enable-recovery");
            }
        }
        // The test's own program; it exists while it runs.
        let program = std::env::current_exe().expect("this program has a path");
        command.arg("-n").arg(self.ranks.to_string()).arg(program);
        command.args(["mpi::rank", "--exact", "--ignored", "--nocapture"]);
        command.env(SCENARIO, self.scenario);
        command
    }
}

/// Waits for the job and collects what it said; one that takes too long is killed and failed.
fn wait(mut child: Child) -> (String, bool) {
    let collect = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut said = Vec::new();
            if let Some(mut pipe) = pipe {
                // What was read before an error is what there is.
                let _ = pipe.read_to_end(&mut said);
            }
            String::from_utf8_lossy(&said).into_owned()
        })
    };
    let out = collect(child.stdout.take().map(|p| Box::new(p) as _));
    let err = collect(child.stderr.take().map(|p| Box::new(p) as _));
    let begun = Instant::now();
    let ok = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if begun.elapsed() < LONG => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                println!("took longer than {LONG:?}");
                break false;
            }
        }
    };
    let said = out.join().unwrap_or_default() + &err.join().unwrap_or_default();
    (said, ok)
}

//! Starting a server as a process of its own, and waiting until it is ready.
//!
//! The server is this executable again, started with a hidden subcommand: nothing is forked after threads have started.
use crate::control::ControlClient;
use crate::failure::{Context, Failure, Result};
use crate::mount_table::detach_all;
use crate::process_handle::wait_for_child;
use crate::spec::{ServerReport, ServerSpec};
use crate::threads;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A server that is ready.
pub struct ServerProcess {
    child: Child,
    spec: ServerSpec,
    /// It got the store's lock, so the store's mounts are its own.
    opened: bool,
    /// Says a line to whoever starts it.
    tell: fn(&str),
}

impl ServerProcess {
    /// Starts a server and waits until all its mounts are ready. `tell` says a line to people, `stage` hears what the server does meanwhile.
    ///
    /// # Errors
    /// What the server reported; or that it did not get ready in `limit`, and at which step. Then it is ended, and
    /// none of its mounts stays.
    pub fn start(
        spec: &ServerSpec,
        limit: Duration,
        tell: fn(&str),
        mut stage: impl FnMut(&str),
    ) -> Result<ServerProcess> {
        let child = Command::new("/proc/self/exe")
            .arg0("forebay")
            .arg("__serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .or_fail(
                "cannot start the server process",
                "raise the limit on processes (ulimit -u)",
            )?;
        let mut server = ServerProcess {
            child,
            spec: spec.clone(),
            opened: false,
            tell,
        };
        server
            .ready(limit, &mut stage)
            .inspect_err(|_| server.kill())?;
        Ok(server)
    }

    fn ready(&mut self, limit: Duration, stage: &mut impl FnMut(&str)) -> Result {
        let json = serde_json::to_vec(&self.spec)
            .or_fail("cannot write the server's specification", "report this")?;
        let (Some(mut input), Some(output)) = (self.child.stdin.take(), self.child.stdout.take())
        else {
            return Err(Failure::new(
                "the server process has no pipes",
                "report this",
            ));
        };
        input
            .write_all(&json)
            .or_fail("the server process ended at once", "look above for why")?;
        drop(input);
        let (sender, reports) = mpsc::channel();
        threads::spawn("server reports", "a thread", move || {
            for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                if sender
                    .send(serde_json::from_str::<ServerReport>(&line))
                    .is_err()
                {
                    return;
                }
            }
        })?;
        // The server watches its own limit and knows more about where it hangs; this is for one that cannot even do that.
        let end = Instant::now() + limit + Duration::from_secs(10);
        let mut last = String::from("starting");
        loop {
            match reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Ok(ServerReport::Ready)) => return Ok(()),
                Ok(Ok(ServerReport::Step(text))) => {
                    stage(&text);
                    last = text;
                }
                Ok(Ok(ServerReport::Opened)) => self.opened = true,
                Ok(Ok(ServerReport::Failed(failed))) => return Err(failed.failure),
                // Only servers of a job say anything else.
                Ok(Ok(_)) => {}
                Ok(Err(e)) => {
                    return Err(Failure::new(
                        format!("the server process said something unknown: {e}"),
                        "report this",
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let log = self.spec.store.join("log");
                    return Err(Failure::new(
                        format!("the server process ended while {last}"),
                        format!("see {}", log.display()),
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let stacks = crate::processes::stacks(self.child.id());
                    stacks.lines().for_each(self.tell);
                    return Err(Failure::new(
                        format!(
                            "the server did not get ready in {} s; it was {last}",
                            limit.as_secs()
                        ),
                        "its threads are printed above; a slow disk may need a larger --start-limit",
                    ));
                }
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it serves.
    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// A connection to it.
    ///
    /// # Errors
    /// If it cannot be reached or refuses.
    pub fn client(&self) -> Result<ControlClient> {
        ControlClient::connect(&self.spec.store).map_err(|e| {
            e.failure(|| {
                Failure::new(
                    "the service has ended by itself",
                    format!("see {}", self.spec.store.join("log").display()),
                )
            })
        })
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// If it does not stop in time; then it is killed.
    pub fn stop(mut self, limit: Duration) -> Result {
        let answer = self
            .client()
            .and_then(|mut client| client.stop(true, limit));
        let ended = self.wait(limit);
        // One that died has left its mounts.
        let answer = answer.inspect_err(|_| self.kill());
        answer?;
        if ended {
            Ok(())
        } else {
            Err(Failure::new("the service did not end", "see its log"))
        }
    }

    /// Kills it (SIGKILL), waits until it is gone, and detaches its dead mounts. One that was refused the store has none:
    /// what is mounted there belongs to the server that has it.
    pub fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        self.wait(Duration::from_secs(20));
        if !self.opened {
            return;
        }
        detach_all(&self.spec.store, &self.spec.mounts, |failure| {
            (self.tell)(&format!("forebay: {failure}"));
        });
    }

    /// Kills it without waiting: whoever waits for its mounts gets an error. Dropping cleans up.
    pub fn end(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // Fails only if it has ended already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }

    /// Lets it go on by itself.
    pub fn detach(self) {
        let mut this = std::mem::ManuallyDrop::new(self);
        // Its pipes are closed already; the process goes on.
        let _ = this.child.try_wait();
    }

    fn wait(&mut self, limit: Duration) -> bool {
        !matches!(wait_for_child(&mut self.child, limit), Ok(None))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

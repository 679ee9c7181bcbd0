//! Several hosts on one machine, made of namespaces: each has its own network, host name, mounts, processes and IPC, its own `/tmp`, `/run`,
//! `/root`, `/dev/shm` and copy of `/etc`, and runs `sshd` with keys made for it. A bridge in a network namespace of its own joins them.
//!
//! ```text
//!   [ switch: bridge br0 ]
//!      |port0      |port1      |port2        veth pairs; no other way in or out
//!      |eth0       |eth0       |eth0         10.77.0.1, 10.77.0.2, ...
//!     [ ha ]      [ hb ]      [ hc ]         ha, ha.cluster.test, ...
//! ```
//!
//! Invariants: nothing has a name outside of the namespaces, so whatever becomes of the test, the kernel clears up once the first process
//! of each host has ended, and that ends with the test; no traffic leaves the namespaces, for none of them has an interface of the machine.
//! `/tmp` of a host is a directory of the test, so what lies on the host's own disk, below its mounts, is seen from outside: [`Hosts::bare`].
use crate::prerequisites::{self, run, skip};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What did not succeed with the file at `path`.
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |e| io::Error::other(format!("{}: {e}", path.display()))
}

/// See the head of this file. Dropping it ends everything on the hosts.
pub struct Hosts {
    switch: FirstProcess,
    hosts: Vec<FirstProcess>,
    // Removed once the hosts have ended.
    dir: tempfile::TempDir,
}

/// The first process of a namespace, and whoever ends it.
struct FirstProcess {
    unshare: Child,
    pid: u32,
}

/// Shell commands that give up the copies that a new mount namespace has of others' FUSE mounts: they would keep those alive.
pub const LEAVE_FUSE_MOUNTS: &str = r#"awk '$3 ~ /^fuse/ { print $2 }' /proc/mounts | while read -r point; do umount -l "$point"; done
"#;

/// What a host runs first, as its root, after [`LEAVE_FUSE_MOUNTS`]: `DIR NAME PROGRAM PID` are this host's directory, its name, the program that `/tmp/forebay` is to
/// be, and the process of the test.
///
/// `sshd` stays as the first process: it waits for orphans as an `init` should.
const START: &str = r#"set -e
DIR=$1 NAME=$2 PROGRAM=$3
hostname "$NAME"
ip link set lo up
mount --bind "$PROGRAM" "$DIR/tmp/forebay"
mount --bind "$DIR/etc" /etc
mount -t tmpfs -o mode=755 host-run /run
mkdir /run/sshd
mount -t tmpfs -o mode=1777 host-shm /dev/shm
mount -t tmpfs -o mode=700 host-root /root
mount --rbind "$DIR/tmp" /tmp
cd /
echo ready
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /usr/sbin/sshd -D -e -f /etc/ssh/test_sshd
"#;

const SSHD: &str = "HostKey /etc/ssh/test_host_key
AuthorizedKeysFile /etc/ssh/test_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
LogLevel ERROR
MaxStartups 100
";

const SSH: &str = "Host *
  IdentityFile /etc/ssh/test_key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  BatchMode yes
  ConnectTimeout 5
  LogLevel ERROR
";

/// Makes `unshare` give what it runs all namespaces of a host.
const OWN_NAMESPACES: [&str; 7] = [
    "--net",
    "--uts",
    "--mount",
    "--ipc",
    "--pid",
    "--fork",
    "--mount-proc",
];

/// The longest that making the hosts may take.
const LIMIT: Duration = Duration::from_secs(60);

impl Hosts {
    /// Makes `n` hosts; `program` is `/tmp/forebay` on each of them. Without the right to make them it says that the test is skipped,
    /// and gives none.
    ///
    /// # Panics
    ///
    /// The hosts cannot be made though there is the right to, or `FOREBAY_REQUIRE_HOSTS` is set and there is not.
    pub fn start(n: usize, program: &Path) -> Option<Hosts> {
        if let Some(why) = lacking() {
            skip("HOSTS", format_args!("no hosts can be made here: {why}"));
            return None;
        }
        assert!(
            (1..=8).contains(&n),
            "names and addresses are for 1 to 8 hosts"
        );
        match Hosts::make(n, program) {
            Ok(hosts) => Some(hosts),
            Err(e) => panic!("{n} hosts cannot be made: {e}"),
        }
    }

    fn make(n: usize, program: &Path) -> io::Result<Hosts> {
        let below = Path::new("/var/tmp");
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix("forebay-hosts-").tempdir_in(below);
        let dir = dir.map_err(file_error(below))?;
        make_keys(dir.path())?;
        let switch = FirstProcess::start(
            Command::new("unshare")
                .args(["--net", "--fork", "--kill-child", "--", "sh", "-c"])
                .arg("echo ready; exec sleep infinity")
                .stderr(Stdio::null()),
        )?;
        switch.enter(&["ip", "link", "add", "br0", "type", "bridge"])?;
        switch.enter(&["ip", "link", "set", "br0", "up"])?;
        let mut hosts = Hosts {
            switch,
            hosts: Vec::new(),
            dir,
        };
        for host in 0..n {
            hosts.add(host, n, program)?;
        }
        let end = Instant::now() + LIMIT;
        let all = "for h in $(cat /tmp/hosts); do ssh $h true </dev/null || exit 1; done";
        for host in 0..n {
            while hosts.sh(host, all).0 != 0 {
                if Instant::now() > end {
                    let text =
                        format!("in {LIMIT:?} not every host reached every other one by ssh");
                    return Err(io::Error::other(text));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(hosts)
    }

    fn add(&mut self, host: usize, n: usize, program: &Path) -> io::Result<()> {
        let own = self.dir.path().join(Hosts::name(host));
        let (etc, tmp) = (own.join("etc"), own.join("tmp"));
        let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(file_error(path));
        std::fs::create_dir_all(&tmp).map_err(file_error(&tmp))?;
        run(Command::new("cp").args(["-a", "/etc"]).arg(&etc))?;
        let replace = |name: &str, text: &str| {
            let path = etc.join(name);
            // It may be a link to what is the machine's.
            let _ = std::fs::remove_file(&path);
            write(&path, text)
        };
        let line = |k| {
            let (address, name) = (Hosts::address(k), Hosts::name(k));
            format!("{address} {name}.cluster.test {name}\n")
        };
        let all: String = (0..n).map(line).collect();
        replace("hosts", &format!("127.0.0.1 localhost\n{all}"))?;
        replace("hostname", Hosts::name(host))?;
        replace("resolv.conf", "")?;
        replace("ssh/ssh_config", SSH)?;
        replace("ssh/test_sshd", SSHD)?;
        for key in ["test_key", "test_key.pub", "test_host_key"] {
            let made = self.dir.path().join(key);
            std::fs::copy(&made, etc.join("ssh").join(key)).map_err(file_error(&made))?;
        }
        let names: Vec<&str> = (0..n).map(Hosts::name).collect();
        write(&tmp.join("hosts"), &(names.join("\n") + "\n"))?;
        write(&tmp.join("forebay"), "")?;
        let mount_point = tmp.join("m");
        std::fs::create_dir(&mount_point).map_err(file_error(&mount_point))?;
        let mut command = Command::new("unshare");
        // What `sshd` says, and in the end `unshare` of its killed child.
        let said = own.join("said");
        let said = std::fs::File::create(&said).map_err(file_error(&said))?;
        command.stderr(said);
        command.args(OWN_NAMESPACES).arg("--kill-child");
        let script = format!("{LEAVE_FUSE_MOUNTS}{START}");
        command.args(["--", "sh", "-c", &script, "sh"]);
        command.arg(&own).arg(Hosts::name(host)).arg(program);
        let first = FirstProcess::start(&mut command)?;
        let (port, pid) = (format!("port{host}"), first.pid.to_string());
        self.switch.enter(&[
            "ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ])?;
        let up = ["ip", "link", "set", &port, "master", "br0", "up"];
        self.switch.enter(&up)?;
        let address = format!("{}/24", Hosts::address(host));
        first.enter(&["ip", "address", "add", &address, "dev", "eth0"])?;
        first.enter(&["ip", "link", "set", "eth0", "up"])?;
        self.hosts.push(first);
        Ok(())
    }

    /// What the host calls itself.
    pub fn name(host: usize) -> &'static str {
        ["ha", "hb", "hc", "hd", "he", "hf", "hg", "hh"][host]
    }

    /// Its address on the bridge.
    pub fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// The directory that is `/tmp` of the host, as seen from outside: without what is mounted there.
    pub fn bare(&self, host: usize) -> PathBuf {
        self.dir.path().join(Hosts::name(host)).join("tmp")
    }

    /// A command that runs on the host, as its root, in `/tmp`, with an environment of its own.
    pub fn command(&self, host: usize, words: &[&str]) -> Command {
        let mut command = self.hosts[host].nsenter();
        command.args(["env", "-C", "/tmp", "-i", "HOME=/root"]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Runs a shell script on the host to its end; its exit code, and what it said on both streams.
    ///
    /// # Panics
    ///
    /// `nsenter` cannot be started.
    pub fn sh(&self, host: usize, script: &str) -> (i32, String) {
        let limited = ["timeout", "-k", "5", "120", "sh", "-c", script];
        let output = self.command(host, &limited).output();
        let output = output.unwrap_or_else(|e| panic!("nsenter cannot be started: {e}"));
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.code().unwrap_or(-1), text)
    }

    /// Cuts the host off from the others, without a word to either side: its port leaves the bridge.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn cut(&self, host: usize) -> io::Result<()> {
        let port = format!("port{host}");
        self.switch.enter(&["ip", "link", "set", &port, "nomaster"])
    }

    /// Undoes [`Hosts::cut`].
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn heal(&self, host: usize) -> io::Result<()> {
        let port = format!("port{host}");
        let join = ["ip", "link", "set", &port, "master", "br0"];
        self.switch.enter(&join)
    }

    /// Takes `/tmp/forebay` away from the host.
    pub fn remove_program(&self, host: usize) {
        let below = self.bare(host).join("forebay");
        let script = format!("umount /tmp/forebay {} && rm /tmp/forebay", below.display());
        let (code, said) = self.sh(host, &script);
        assert_eq!(code, 0, "{said}");
    }

    /// Gives each host an interface that reaches no other one, with the same address on all, as container engines do.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn add_lonely_interface(&self) -> io::Result<()> {
        for host in &self.hosts {
            host.enter(&["ip", "link", "add", "docker0", "type", "bridge"])?;
            host.enter(&["ip", "address", "add", "172.30.0.1/16", "dev", "docker0"])?;
            host.enter(&["ip", "link", "set", "docker0", "up"])?;
        }
        Ok(())
    }

    /// The processes of a host whose command line holds `word`, by their number there, with that line.
    pub fn processes(&self, host: usize, word: &str) -> Vec<(u32, String)> {
        let (_, said) = self.sh(host, "cd /proc; for p in [0-9]*; do printf '%s %s\\n' $p \"$(tr '\\0\\n' '  ' <$p/cmdline)\"; done 2>/dev/null");
        let parse = |line: &str| {
            let (pid, line) = line.split_once(' ')?;
            let found = line.contains(word) && !line.contains("cd /proc;");
            Some((pid.parse().ok()?, line.to_string())).filter(|_| found)
        };
        said.lines().filter_map(parse).collect()
    }

    /// Sends a signal (`KILL`, `TERM`, ...) to a process of the host.
    pub fn signal(&self, host: usize, pid: u32, signal: &str) {
        self.sh(host, &format!("kill -{signal} {pid}"));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.hosts {
            // Each gives its mounts up with its last process; one that hangs in a dead mount is woken by that.
            host.end();
        }
        self.switch.end();
        for process in self.hosts.iter_mut().chain([&mut self.switch]) {
            let _ = process.unshare.wait();
        }
    }
}

impl FirstProcess {
    /// Starts `unshare`; waits until what it runs has said "ready".
    fn start(command: &mut Command) -> io::Result<FirstProcess> {
        use std::os::unix::process::CommandExt;
        // SAFETY: one call that is allowed between fork and exec; it touches no memory.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(
                    rustix::process::Signal::KILL,
                ))?;
                Ok(())
            });
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut unshare = command.spawn()?;
        let mut line = String::new();
        if let Some(said) = unshare.stdout.take() {
            // What cannot be read is not "ready".
            let _ = BufReader::new(said).read_line(&mut line);
        }
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        match children.trim().parse() {
            Ok(pid) if line == "ready\n" => Ok(FirstProcess { unshare, pid }),
            _ => {
                // It may have ended; and what it runs ends with it.
                let _ = unshare.kill();
                let _ = unshare.wait();
                let text = format!("{command:?} has ended before it was ready");
                Err(io::Error::other(text))
            }
        }
    }

    fn nsenter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--all", "--"]);
        command
    }

    fn enter(&self, words: &[&str]) -> io::Result<()> {
        run(self.nsenter().args(words))
    }

    fn end(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32) {
            // Fails only if it has ended. What its namespace holds ends with it, and so does `unshare`.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Why there can be no hosts here.
fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may make them".into());
    }
    for program in [
        "ip",
        "nsenter",
        "unshare",
        "ssh",
        "ssh-keygen",
        "/usr/sbin/sshd",
        "timeout",
    ] {
        if prerequisites::program(program).is_none() {
            return Some(format!("{program} is missing; `make setup` installs it"));
        }
    }
    let allowed = "ip link add t0 type veth peer name t1 && ip link add t2 type bridge && mount -t tmpfs t /run";
    let tried = Command::new("unshare")
        .args(OWN_NAMESPACES)
        .args(["sh", "-c", allowed])
        .output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(e) => Some(format!("unshare: {e}")),
    }
}

fn make_keys(dir: &Path) -> io::Result<()> {
    for name in ["test_key", "test_host_key"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "a test", "-f"]);
        run(command.arg(dir.join(name)))?;
    }
    Ok(())
}

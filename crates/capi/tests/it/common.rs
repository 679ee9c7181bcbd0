//! A service of two nodes in this process, and programs that are compiled and run against it.
use forebay_client::Client;
use forebay_client::link::server::{LinkLimits, LinkServer};
use forebay_client::link::socket_of;
use forebay_server::{Config, Service};
use forebay_storage::OsIo;
use forebay_testkit::prerequisites::has_program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// The crate's directory.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The directory of the library that cargo built for these tests.
pub fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_path_buf()
}

/// A service that runs, with a client and a link at each of two nodes.
pub struct World {
    pub clients: Vec<Client>,
    pub dir: tempfile::TempDir,
    _links: Vec<LinkServer>,
    _service: Service,
}

impl World {
    pub fn start() -> World {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            nodes: 2,
            ..Config::default()
        };
        let service = Service::start(Arc::new(OsIo), &dir.path().join("s"), config).unwrap();
        let link = |node| {
            let socket = socket_of(dir.path(), node);
            LinkServer::start(&socket, service.delegate(node), LinkLimits::default()).unwrap()
        };
        World {
            _links: (0..2).map(link).collect(),
            clients: (0..2).map(|n| Client::new(service.delegate(n))).collect(),
            _service: service,
            dir,
        }
    }

    /// What programs connect to.
    pub fn place(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }
}

/// Runs a command, and insists that it works; what it says.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        status.success(),
        "{command:?}: {status}: {}{}",
        text(&stdout),
        text(&stderr)
    );
    text(&stdout)
}

/// Compiles a program with the library as cargo built it; where it is, unless there is no compiler.
#[track_caller]
pub fn compiled(
    compiler: &str,
    options: &[&str],
    sources: &[PathBuf],
    to: &Path,
) -> Option<PathBuf> {
    if !has_program(compiler) {
        return None;
    }
    let (library, place) = (built(), to.parent().unwrap());
    // A program looks for the library by its soname, and cargo knows no such name. There may be one of an earlier program.
    let _ =
        std::os::unix::fs::symlink(library.join("libforebay.so"), place.join("libforebay.so.0"));
    let mut command = Command::new(compiler);
    command
        .args(options)
        .arg("-I")
        .arg(source("include"))
        .arg("-J")
        .arg(to.parent().unwrap())
        .args(sources)
        .arg("-L")
        .arg(&library)
        .arg("-lforebay")
        .arg(format!("-Wl,-rpath,{}", place.display()))
        .arg("-o")
        .arg(to);
    // Where Fortran puts modules; C has no such word.
    if compiler != "gfortran" {
        let mut plain = Command::new(compiler);
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let module = args.iter().position(|a| a == "-J").unwrap();
        plain.args(&args[..module]).args(&args[module + 2..]);
        command = plain;
    }
    run(&mut command);
    Some(to.to_path_buf())
}

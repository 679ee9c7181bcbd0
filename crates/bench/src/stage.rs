//! Staging out against `cp`: the same tree, once in a service and once plain, on the same disk; both sides read cold and end
//! when everything is on disk. In a round both in turn, in alternating order.
use crate::StageArgs;
use crate::cache::CacheDropping;
use crate::fail::{Context, Failure, Result};
use crate::harness::{Case, in_turn, run_program};
use crate::report::Report;
use crate::sizes;
use forebay_testkit::random::Random;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What `forebay run` is told of the servers.
const CASES: [Case<&[&str]>; 3] = [
    Case::new("out-1n", &["--launcher", "embedded", "--nodes", "1"]),
    Case::new("out-4n", &["--launcher", "embedded", "--nodes", "4"]),
    Case::new("out-mpi-4p", &["--launcher", "mpirun", "--nodes", "4"]),
];

/// Bytes of a write while the tree is made.
const CHUNK: usize = 1 << 20;

/// Runs the subcommand.
///
/// # Errors
/// If the service cannot be started, a copy fails, or it is not the same as its source.
pub fn run(args: &StageArgs) -> Result<()> {
    let Some(cases) = args.run.choose(&CASES, "")? else {
        return Ok(());
    };
    let program = args.program.find()?;
    let work = args.dir.make()?;
    let cold = CacheDropping::choose();
    let source = work.0.join("source");
    let bytes = make_files(&source, args.files, args.size)?;
    header(args, &work.0, cold, bytes)?;
    let mut report = Report::new("stage", "cp");
    for Case {
        name: case,
        work: servers,
        ..
    } in cases
    {
        let dir = work.0.join(case);
        let service = StageService::start(&program, &dir, servers).doing(case)?;
        let tree = service.mount.join("tree");
        service.stage("in", &source, &tree).doing(case)?;
        for round in 0..args.run.runs {
            args.run.progress(case, round);
            for (subject, staged) in in_turn(&[("forebay", true), ("cp", false)], round) {
                let to = work.0.join(if staged { "staged" } else { "copied" });
                cold.drop_caches(&[&source, &dir]);
                let begin = Instant::now();
                match staged {
                    true => service.stage("out", &tree, &to)?,
                    false => copy(&source, &to)?,
                }
                let rate = bytes as f64 / begin.elapsed().as_secs_f64();
                report.add(case, "bytes_per_s", subject, "B/s", rate);
                if round == 0 {
                    same(&source, &to)?;
                }
                std::fs::remove_dir_all(&to).doing(to.display())?;
            }
        }
        service.stop().doing(case)?;
        std::fs::remove_dir_all(&dir).doing(dir.display())?;
        args.run.print(&report, case, Report::table)?;
    }
    Ok(())
}

fn header(args: &StageArgs, dir: &Path, cold: CacheDropping, bytes: u64) -> Result<()> {
    let text = format!(
        "# stage: {} runs, {} files and one of {}, {} in all, in {}\n\
         # durability: all of the copy is on disk at the end (stage out; cp -a, then sync -f)\n\
         # memory: the kernel's page cache for both; forebay's servers besides, their default budget\n\
         # reads: {}\n\
         # ratio: median against cp's\n",
        args.run.runs,
        args.files,
        sizes::show(args.size as f64),
        sizes::show(bytes as f64),
        dir.display(),
        cold.text(),
    );
    args.run.begin(&text, &Report::head())
}

/// Makes the tree; how many bytes it has.
fn make_files(dir: &Path, files: u64, size: u64) -> Result<u64> {
    let mut total = size;
    let mut random = Random::new(1);
    let mut block = vec![0; CHUNK];
    for n in 0..files {
        let below = dir.join(format!("d{}", n % 100));
        std::fs::create_dir_all(&below).doing(below.display())?;
        let bytes = &mut block[..8000 + (n % 50) as usize * 100];
        random.fill(bytes);
        total += bytes.len() as u64;
        let path = below.join(format!("f{n}"));
        std::fs::write(&path, bytes).doing(path.display())?;
    }
    std::fs::create_dir_all(dir).doing(dir.display())?;
    let path = dir.join("large");
    let mut file = File::create(&path).doing(path.display())?;
    let mut left = size;
    while left > 0 {
        let len = left.min(CHUNK as u64) as usize;
        random.fill(&mut block[..len]);
        file.write_all(&block[..len]).doing(path.display())?;
        left -= len as u64;
    }
    Ok(total)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "cp -a \"$1\" \"$2\" && sync -f \"$2\"", "sh"]);
    run_program(command.args([from, to]))
}

fn same(a: &Path, b: &Path) -> Result<()> {
    run_program(Command::new("diff").arg("-rq").args([a, b]))
}

/// A service that ends when its standard input does; so it does not outlive this process.
struct StageService {
    child: Child,
    program: PathBuf,
    mount: PathBuf,
}

impl StageService {
    fn start(program: &Path, dir: &Path, servers: &[&str]) -> Result<StageService> {
        let several = servers.contains(&"mpirun");
        for n in 0..4 {
            let mount = dir.join(format!("m{n}"));
            std::fs::create_dir_all(&mount).doing(mount.display())?;
        }
        let store = dir.join(if several { "s{rank}" } else { "s" });
        let mut command = Command::new(program);
        command.arg("run").args(servers);
        command.arg("--store").arg(store);
        command.arg("--mount").arg(match servers.last() {
            Some(&"1") => dir.join("m0"),
            _ => dir.join("m{rank}"),
        });
        command.args(["--", "sh", "-c", "echo \"$FOREBAY_MOUNT\"; cat"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().doing(program.display())?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let mount = PathBuf::from(line.trim_end());
        if !mount.is_absolute() {
            // What it has said went to standard error.
            let status = child.wait()?;
            return Err(Failure::new(format!(
                "the service did not start: {status}; for mpirun, build forebay with `--features mpi`"
            )));
        }
        Ok(StageService {
            child,
            program: program.to_path_buf(),
            mount,
        })
    }

    fn stage(&self, way: &str, from: &Path, to: &Path) -> Result<()> {
        run_program(
            Command::new(&self.program)
                .args(["stage", way])
                .args([from, to]),
        )
    }

    fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the service did not stop well: {status}"
            ))),
        }
    }
}

impl Drop for StageService {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It was waited for already, or ends now.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_compared_and_a_wrong_one_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        assert_eq!(make_files(&from, 3, 3_000_000).unwrap(), 3_024_300);
        copy(&from, &to).unwrap();
        same(&from, &to).unwrap();
        std::fs::write(to.join("d1/f1"), "x").unwrap();
        assert!(same(&from, &to).is_err_and(|e| e.0.contains("f1")));
    }
}

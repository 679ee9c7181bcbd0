//! The command line by which a launcher starts this program on a host, so that a host where it cannot be run reports that.
//!
//! Launchers do not report it: OpenMPI's `mpirun --enable-recovery` hides that a program was not found, and Hydra reports it
//! but waits on for that rank. So each host runs a shell, which first asks the program for its version. That fails where the
//! program is missing, is for another machine, or lacks a library; the shell then writes the report that a server would write
//! ([`ServerReport::CannotRun`]). If the version came, the shell runs the server in its own place (`exec`): same process, same
//! parent, same descriptors.
//!
//! [`ServerReport::CannotRun`]: forebay_node::spec::ServerReport::CannotRun
use std::ffi::OsStr;
use std::process::Command;

/// One line, for lists of processes show it. Standard input is the first server's; what the program says is made to fit in a string of JSON.
const SCRIPT: &str = concat!(
    r#"said=$("$0" version 2>&1 >/dev/null </dev/null) && exec "$0" "$@"; "#,
    r#"said=$(printf %s "$said" | LC_ALL=C tr -c '[:print:]' ' ' | LC_ALL=C tr -d '"\\' | head -c 500); "#,
    r#"printf '{"CannotRun":{"host":"%s","said":"%s"}}\n' "$(uname -n)" "$said"; exit 127"#
);

/// Appends the program to what a launcher is called with; its own arguments come after.
pub fn program(launcher: &mut Command, program: &OsStr) {
    launcher.args(["/bin/sh", "-c", SCRIPT]).arg(program);
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_node::spec::ServerReport;
    use std::path::Path;

    /// What the shell does with a program at this path: its output and exit code.
    fn start(path: &Path) -> (String, Option<i32>) {
        // Stands for a launcher.
        let mut command = Command::new("env");
        program(&mut command, path.as_os_str());
        let output = command.args(["serve", "a  b", "$c"]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (said, output.status.code())
    }

    /// A program at this path; another process writes it, so that no process of a test beside holds it open for writing.
    fn write(path: &Path, text: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"printf %s "$0" >"$1" && chmod 755 "$1""#, text]);
        assert!(shell.arg(path).status().unwrap().success());
    }

    #[test]
    fn a_program_that_runs_gets_its_arguments_and_takes_the_place_of_the_shell() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a program");
        let text = "#!/bin/sh\n[ \"$1\" = version ] && exit\nprintf '%s|' \"$@\"; exit 7\n";
        write(&path, text);
        let (said, code) = start(&path);
        assert_eq!((&*said, code), ("serve|a  b|$c|", Some(7)));
    }

    #[test]
    fn a_program_that_does_not_run_is_reported_in_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let reported = || {
            let (said, code) = start(&path);
            assert_eq!(code, Some(127), "{said}");
            match serde_json::from_str(&said) {
                Ok(ServerReport::CannotRun { host, said }) => {
                    assert_eq!(host, forebay_node::spec::host());
                    said
                }
                other => panic!("{other:?}: {said}"),
            }
        };
        let said = reported();
        assert!(said.contains("not found"), "{said}");
        write(
            &path,
            "#!/bin/sh\necho 'no \"lib\\mpi\" \u{1b}[2J\nin here' >&2; exit 1\n",
        );
        let said = reported();
        assert_eq!(said, "no libmpi  [2J in here");
    }
}

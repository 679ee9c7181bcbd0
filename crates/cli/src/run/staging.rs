//! `--stage-in` and `--stage-out` of `run`: what is copied before the command starts and after it has ended.
//!
//! Invariants: what can be checked is checked before any server starts; no path of the plain side lies in the store or on a
//! mount; what could not be staged out stays in the service.
use super::Servers;
use crate::args::RunArgs;
use crate::output::print_error_line;
use crate::subcommands::{stage, stage_paths};
use forebay_node::control::StageSpec;
use forebay_node::failure::{Failure, Result};
use forebay_node::mount_table;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// One name to copy. Which paths lie on a mount is only known once the service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySpec {
    /// Outside of the service, absolute.
    plain: PathBuf,
    /// In it: from its root, or below a mount.
    inside: PathBuf,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Staging {
    /// Before the command.
    pub into: Vec<CopySpec>,
    /// After it.
    pub out: Vec<CopySpec>,
}

impl Staging {
    /// Reads the arguments, and looks at the plain side.
    ///
    /// # Errors
    /// What cannot be understood (2); a source, or a directory for a target, that is not there.
    pub fn plan(args: &RunArgs, mount: Option<&Path>) -> Result<Staging> {
        let all = |texts: &[String], into| -> Result<Vec<CopySpec>> {
            let flag = if into { "--stage-in" } else { "--stage-out" };
            let mut copies = Vec::new();
            for text in texts {
                let told = |failure: Failure| failure.prefixed(format_args!("{flag} {text}: "));
                copies.extend(copies_of(text, into).map_err(told)?);
            }
            for copy in &copies {
                refuse_own(args, mount, flag, copy)?;
            }
            Ok(copies)
        };
        Ok(Staging {
            into: all(&args.stage_in, true)?,
            out: all(&args.stage_out, false)?,
        })
    }

    /// Copies one direction, if there is anything to copy. `asked` cancels it.
    ///
    /// # Errors
    /// What could not be copied.
    pub fn copy(&self, into: bool, servers: &dyn Servers, asked: &AtomicBool) -> Result {
        let copies = if into { &self.into } else { &self.out };
        if copies.is_empty() {
            return Ok(());
        }
        let mounts = servers.mounts();
        let store = store(&mounts)?;
        let pair = |copy: &CopySpec| {
            let plain = stage_paths::text(&copy.plain)?;
            let inside = stage_paths::text(&inside(&mounts, &copy.inside))?;
            Ok(match into {
                true => (plain, inside),
                false => (inside, plain),
            })
        };
        let spec = StageSpec {
            into,
            pairs: copies.iter().map(pair).collect::<Result<_>>()?,
            verify: false,
            sync: true,
            background: false,
            jobs: 0,
        };
        // Standard output is the command's.
        print_error_line(format!(
            "forebay: {}",
            stage::copy(spec, &store, asked)?.trim_end()
        ));
        Ok(())
    }
}

/// The store of a server on this machine.
///
/// # Errors
/// If there is none.
pub fn store(mounts: &[PathBuf]) -> Result<PathBuf> {
    let all = mount_table::all()?;
    let of = |point: &PathBuf| mount_table::at(&all, point).and_then(mount_table::store);
    mounts.iter().find_map(of).ok_or_else(|| {
        Failure::new(
            "no server runs on this machine, so nothing can be staged from here",
            "start `run` on one of the hosts",
        )
    })
}

/// What one argument names.
fn copies_of(text: &str, into: bool) -> Result<Vec<CopySpec>> {
    if let Some(manifest) = text.strip_prefix('@') {
        let pairs = stage_paths::read(Path::new(manifest))?;
        let copy = |(line, from, to): (String, PathBuf, PathBuf)| {
            copy(&from, &to, into).map_err(|failure| failure.prefixed(line))
        };
        return pairs.into_iter().map(copy).collect();
    }
    let parts: Vec<&str> = text.split(':').collect();
    let (from, to) = match (parts[..].as_ref(), into) {
        ([from, to], _) if !from.is_empty() && !to.is_empty() => {
            (PathBuf::from(from), PathBuf::from(to))
        }
        ([from], true) if !from.is_empty() => {
            let from = PathBuf::from(from);
            // A tree becomes the service's root; a file gets its own name there.
            let name = from.file_name().filter(|_| !from.is_dir());
            let to = Path::new("/").join(name.unwrap_or_default());
            (from, to)
        }
        ([to], false) if !to.is_empty() => (PathBuf::from("/"), PathBuf::from(to)),
        _ => {
            return Err(Failure::usage(
                "it is not SRC:DST",
                "write one colon between two paths; names with colons go into a manifest, @FILE",
            ));
        }
    };
    Ok(vec![copy(&from, &to, into)?])
}

fn copy(from: &Path, to: &Path, into: bool) -> Result<CopySpec> {
    let (plain, inside) = if into { (from, to) } else { (to, from) };
    if inside.components().any(|c| c == Component::ParentDir) {
        let what = format!("{}: `..` in the service", inside.display());
        return Err(Failure::usage(what, "write the path from its root"));
    }
    // A target's directory must be there now: the command may run for days.
    let plain = stage_paths::absolute(&[], plain)?;
    if into {
        stage_paths::check_source(&plain)?;
    }
    Ok(CopySpec {
        plain,
        inside: inside.to_path_buf(),
    })
}

/// The plain side must not lie in the store or on the mount; where these differ by server, the service itself finds it.
fn refuse_own(args: &RunArgs, mount: Option<&Path>, flag: &str, copy: &CopySpec) -> Result {
    let store = Some(args.store.as_path());
    let places = [("store", store), ("mount", mount)];
    for (what, place) in places
        .into_iter()
        .filter_map(|(what, place)| Some((what, place?)))
    {
        let whole = !place.to_string_lossy().contains('{');
        let place = mount_table::absolute(place)?;
        if whole && copy.plain.starts_with(&place) {
            return Err(Failure::usage(
                format!("{flag}: {} lies below --{what}", copy.plain.display()),
                "name a directory outside of the service",
            ));
        }
    }
    Ok(())
}

/// A path in the service, from its root: as it was given, or what is left of one below a mount.
fn inside(mounts: &[PathBuf], path: &Path) -> PathBuf {
    let below = mounts.iter().find_map(|m| path.strip_prefix(m).ok());
    let rest = match below {
        Some(rest) => rest,
        None => path.strip_prefix("/").unwrap_or(path),
    };
    let names = rest.components().filter(|c| *c != Component::CurDir);
    Path::new("/").join(names.collect::<PathBuf>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_argument_names_a_pair_a_tree_a_file_or_a_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("tree")).unwrap();
        std::fs::write(base.join("file"), "x").unwrap();
        std::fs::write(
            base.join("list"),
            format!("# two\nin/a {0}/a\n/b {0}/b\n", base.display()),
        )
        .unwrap();
        let at = |name: &str| base.join(name);
        let one = |text: String, into| {
            let copies = copies_of(&text, into).unwrap();
            assert_eq!(copies.len(), 1);
            (copies[0].plain.clone(), copies[0].inside.clone())
        };
        let shown = base.display();
        assert_eq!(
            one(format!("{shown}/tree:in"), true),
            (at("tree"), "in".into())
        );
        assert_eq!(one(format!("{shown}/tree"), true), (at("tree"), "/".into()));
        assert_eq!(
            one(format!("{shown}/file"), true),
            (at("file"), "/file".into())
        );
        assert_eq!(one(format!("{shown}/new"), false), (at("new"), "/".into()));
        assert_eq!(
            one(format!("/r:{shown}/new"), false),
            (at("new"), "/r".into())
        );
        let copies = copies_of(&format!("@{shown}/list"), false).unwrap();
        let plain: Vec<_> = copies.iter().map(|c| c.plain.clone()).collect();
        assert_eq!(plain, [at("a"), at("b")]);
        for (text, into, word) in [
            ("a:b:c".to_string(), true, "one colon"),
            (":b".into(), true, "one colon"),
            (String::new(), false, "one colon"),
            (format!("{shown}/none:/x"), true, "none"),
            (format!("/x:{shown}/none/x"), false, "create it"),
            (format!("{shown}/tree:a/../b"), true, "`..`"),
            (format!("@{shown}/none"), false, "manifest"),
        ] {
            let failure = copies_of(&text, into).unwrap_err();
            assert!(failure.text.contains(word), "{text}: {failure}");
        }
    }

    #[test]
    fn a_path_in_the_service_begins_at_its_root_or_at_a_mount() {
        let mounts = ["/m/0".into(), "/m/1".into()];
        for (path, want) in [
            ("/m/1/a/b", "/a/b"),
            ("/m/1", "/"),
            ("/m/10", "/m/10"),
            ("/a/./b/", "/a/b"),
            ("a", "/a"),
            ("/", "/"),
        ] {
            assert_eq!(inside(&mounts, Path::new(path)), Path::new(want));
        }
    }
}

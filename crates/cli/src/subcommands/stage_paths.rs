//! Finds the service of a stage job, and translates paths below a mount to paths in it.
use crate::args::StageArgs;
use crate::files::read_text;
use forebay_client::stage::parse_manifest;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::limits::within;
use forebay_node::mount_table::{self, MountEntry};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest manifest, bytes: it has to fit a line of the control socket.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// How long the file system of a path may take to answer.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

/// A store, and the pairs as its service is told them.
pub struct StagePaths {
    /// Of the service.
    pub store: PathBuf,
    /// Sources and targets.
    pub pairs: Vec<(String, String)>,
}

/// Reads the arguments, or the manifest.
///
/// # Errors
/// A path that is missing or on the wrong side; a manifest that cannot be read. Nothing has been copied then.
pub fn resolve(args: &StageArgs, into: bool) -> Result<StagePaths> {
    let pairs = match (&args.manifest, &args.src, &args.dst) {
        (Some(manifest), ..) => read(manifest)?,
        (None, Some(from), Some(to)) => vec![(String::new(), from.clone(), to.clone())],
        // The command line's definition asks for both.
        _ => return Err(Failure::usage("a path is missing", "write `SRC DST`")),
    };
    let mounts = mount_table::all()?;
    let mut resolved = StagePaths {
        store: PathBuf::new(),
        pairs: Vec::with_capacity(pairs.len()),
    };
    for (line, from, to) in pairs {
        let told = |failure: Failure| failure.prefixed(&line);
        let (store, pair) = resolve_pair(&mounts, &from, &to, into).map_err(told)?;
        if !resolved.pairs.is_empty() && resolved.store != store {
            return Err(told(Failure::usage(
                format!(
                    "it is of another service than the lines before ({})",
                    store.display()
                ),
                "use one manifest for each service",
            )));
        }
        resolved.store = store;
        resolved.pairs.push(pair);
    }
    if resolved.pairs.is_empty() {
        return Err(Failure::usage(
            "the manifest names nothing",
            "write a line `SRC DST` for each file or directory",
        ));
    }
    Ok(resolved)
}

/// The pairs of a manifest, each with where it stands.
///
/// # Errors
/// If it cannot be read, or a line of it (2).
pub fn read(manifest: &Path) -> Result<Vec<(String, PathBuf, PathBuf)>> {
    let shown = manifest.display();
    let text = read_text("manifest", manifest, MAX_MANIFEST_BYTES, "name a text file")?;
    let pairs = parse_manifest(&text)
        .map_err(|e| Failure::usage(format!("{shown}, line {}", e.line), e.why))?;
    let place = |(line, from, to): (usize, String, String)| {
        (format!("{shown}, line {line}: "), from.into(), to.into())
    };
    Ok(pairs.into_iter().map(place).collect())
}

fn resolve_pair(
    mounts: &[MountEntry],
    from: &Path,
    to: &Path,
    into: bool,
) -> Result<(PathBuf, (String, String))> {
    let (from_path, to_path) = (absolute(mounts, from)?, absolute(mounts, to)?);
    let (ours, plain) = match into {
        true => (&to_path, &from_path),
        false => (&from_path, &to_path),
    };
    let Some((mount, store)) = mount_table::below(mounts, ours)
        .and_then(|m| mount_table::store(m).map(|store| (m, store)))
    else {
        let (what, subcommand) = if into {
            ("target", "stage in")
        } else {
            ("source", "stage out")
        };
        return Err(Failure::usage(
            format!("the {what} {} is not on a Forebay mount", ours.display()),
            format!(
                "`forebay {subcommand}` needs a {what} below a mount point of `forebay mount`; `findmnt -t fuse.forebay` lists them"
            ),
        ));
    };
    if into {
        // Said before a job begins. What is in the service, its server finds.
        check_source(plain)?;
    }
    let inside = |path: &Path| {
        let rest = path.strip_prefix(&mount.point).unwrap_or(path);
        Path::new("/").join(rest)
    };
    let (from, to) = match into {
        true => (from_path.clone(), inside(&to_path)),
        false => (inside(&from_path), to_path.clone()),
    };
    Ok((store, (text(&from)?, text(&to)?)))
}

/// Whether the source outside of the service is there.
///
/// # Errors
/// If it is not, or its file system does not answer.
pub fn check_source(plain: &Path) -> Result {
    let (path, shown) = (plain.to_path_buf(), plain.display());
    let doing = format!("looking at {shown}");
    let found = within(LOOK_LIMIT, &doing, move || path.symlink_metadata())?;
    let next = "name an existing file or directory";
    found
        .or_fail(format!("cannot open the source {shown}"), next)
        .map(drop)
}

/// The path without `.`, `..` and links in all but its last name, which stays: a link is copied as a link.
///
/// # Errors
/// If the directory above it is not there.
pub fn absolute(mounts: &[MountEntry], path: &Path) -> Result<PathBuf> {
    let path: PathBuf = std::path::absolute(path)
        .or_fail(
            "cannot read the current directory",
            "change to one that exists",
        )?
        .components()
        .collect();
    if mount_table::at(mounts, &path).is_some() {
        return Ok(path);
    }
    let shown = path.display().to_string();
    let (above, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (parent.to_path_buf(), Some(name.to_os_string())),
        // It ends in `..`, or is the root.
        _ => (path.clone(), None),
    };
    let directory = above.display().to_string();
    let doing = format!("looking at {shown}");
    let real = within(LOOK_LIMIT, &doing, move || above.canonicalize())?;
    let real = real.or_fail(
        format!("cannot open the directory {directory}"),
        "create it, or name another",
    )?;
    Ok(name.map_or(real.clone(), |name| real.join(name)))
}

/// The path as text.
///
/// # Errors
/// If it is not UTF-8.
pub fn text(path: &Path) -> Result<String> {
    path.to_str().map(String::from).ok_or_else(|| {
        Failure::usage(
            format!("the name {} is not UTF-8", path.display()),
            "name the directory above it: names below may be any bytes",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_mount_is_named_from_its_root_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("m/a")).unwrap();
        std::fs::write(base.join("src"), "x").unwrap();
        std::os::unix::fs::symlink(base.join("src"), base.join("link")).unwrap();
        let mounts = [crate::subcommands::mount_entry(
            base.join("m").to_str().unwrap(),
            Path::new("/s"),
        )];
        let (store, pair) =
            resolve_pair(&mounts, &base.join("link"), &base.join("m/a/../a/b"), true).unwrap();
        assert_eq!(store, Path::new("/s"));
        assert_eq!(
            pair,
            (base.join("link").to_str().unwrap().into(), "/a/b".into())
        );
        let (_, pair) = resolve_pair(&mounts, &base.join("m"), &base.join("out/"), false).unwrap();
        assert_eq!(
            pair,
            ("/".into(), base.join("out").to_str().unwrap().into())
        );
        for (from, to, into, word) in [
            ("src", "other", true, "target"),
            ("src", "other", false, "source"),
            ("none", "m/x", true, "No such file"),
            ("src", "m/none/x", true, "m/none"),
        ] {
            let failure =
                resolve_pair(&mounts, &base.join(from), &base.join(to), into).unwrap_err();
            assert!(failure.text.contains(word), "{failure}");
        }
    }

    #[test]
    fn a_manifest_that_cannot_be_read_names_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        std::fs::write(&path, "# two\n/a /b\n/c\n").unwrap();
        let failure = read(&path).unwrap_err();
        assert!(
            failure.text.contains("list, line 3") && failure.code == 2,
            "{failure}"
        );
        assert!(
            read(&dir.path().join("none"))
                .unwrap_err()
                .text
                .contains("none")
        );
    }
}

//! The documentation says what the program does: generated pages are up to date, and links lead somewhere.
//! `UPDATE_DOCS=1 cargo test -p forebay-cli --test docs` rewrites the generated pages.
#![allow(clippy::unwrap_used)] // A test fails by panicking.
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn compare(name: &str, generated: &str) {
    let path = root().join("docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let line = there
        .lines()
        .zip(generated.lines())
        .position(|(a, b)| a != b);
    assert!(
        there == generated,
        "docs/{name} is out of date (first difference after line {line:?}); run `UPDATE_DOCS=1 cargo test -p forebay-cli --test docs`"
    );
}

#[test]
fn the_page_of_settings_is_up_to_date() {
    compare("configuration.md", &forebay_cli::docs::configuration());
}

#[test]
fn the_page_of_commands_is_up_to_date() {
    compare("commands.md", &forebay_cli::docs::commands());
}

/// The pages outside `docs`.
const PAGES: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];

/// What a heading is called in a link: lower case, hyphens for blanks, nothing else but letters and digits.
fn anchors(page: &str) -> Vec<String> {
    let heading = |line: &str| {
        line.trim_start_matches('#')
            .trim()
            .to_lowercase()
            .replace(' ', "-")
    };
    page.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            heading(line)
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
                .collect()
        })
        .collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = root();
    let docs = std::fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|e| e.unwrap().path());
    let pages = docs.chain(PAGES.map(|p| root.join(p)));
    let mut links = 0;
    for page in pages.filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match target {
                "" => page.clone(),
                _ => page.parent().unwrap().join(target),
            };
            assert!(target.exists(), "{} links to {link}", page.display());
            let there = || anchors(&std::fs::read_to_string(&target).unwrap());
            assert!(
                anchor.is_empty() || there().iter().any(|a| a == anchor),
                "{} links to {link}, which has no such heading",
                page.display()
            );
            links += 1;
        }
    }
    assert!(links > 5, "the README links to the pages");
}

#[test]
fn the_page_of_formats_names_every_module_that_draws_one() {
    let page = std::fs::read_to_string(root().join("docs/formats.md")).unwrap();
    let mut pages = vec![root().join("crates")];
    let mut drawn = 0;
    while let Some(path) = pages.pop() {
        if path.is_dir() {
            pages.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if !name.ends_with(".rs") || !name.contains("/src/") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let versioned = [
            "const MAGIC:",
            "const VERSION:",
            "const FORMAT:",
            "pub const KIND:",
        ];
        if versioned.iter().any(|mark| text.contains(mark)) {
            assert!(
                page.contains(&format!("(../{name})")),
                "docs/formats.md says nothing of {name}"
            );
            drawn += 1;
        }
    }
    assert!(drawn > 8, "formats were found: {drawn}");
}

#[test]
fn the_make_targets_that_the_pages_name_exist() {
    let read = |page: &str| std::fs::read_to_string(root().join(page)).unwrap();
    let (makefile, pages) = (
        read("Makefile"),
        read("README.md") + &read("CONTRIBUTING.md"),
    );
    for target in ["setup", "demo", "test", "soak", "bench-mount"] {
        assert!(
            makefile.contains(&format!("\n{target}:")),
            "{target} in the Makefile"
        );
        assert!(
            pages.contains(&format!("make {target}")),
            "{target} in the pages"
        );
    }
}

//! The documentation says what the program does: generated pages are up to date, and links lead somewhere.
//! `UPDATE_DOCS=1 cargo test -p forebay-cli --test it docs::` rewrites the generated pages.
use clap::Parser;
use forebay_testkit::turns;
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
        "docs/{name} is out of date (first difference after line {line:?}); run `UPDATE_DOCS=1 cargo test -p forebay-cli --test it docs::`"
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

#[test]
fn the_page_of_metrics_lists_each_of_them_and_no_other() {
    let path = root().join("docs/monitoring.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let is_line = |line: &&str| line.starts_with("| `forebay_");
    let line = |metric: &forebay_node::metrics::Metric| {
        let labels: Vec<_> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, labels, help) = (metric.name, labels.join(", "), metric.help);
        format!("| `{name}` | {labels} | {help} |")
    };
    let all: Vec<String> = forebay_node::metrics::METRICS.iter().map(line).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let kept = page.lines().filter(|l| !is_line(l));
        let mut text: Vec<String> = Vec::new();
        for line in kept {
            text.push(line.to_string());
            if line == "|---|---|---|" {
                text.extend(all.iter().cloned());
            }
        }
        std::fs::write(&path, text.join("\n") + "\n").unwrap();
        return;
    }
    let there: Vec<&str> = page.lines().filter(is_line).collect();
    assert_eq!(
        there, all,
        "run `UPDATE_DOCS=1 cargo test -p forebay-cli --test it docs::`"
    );
    // What the page uses in expressions is there too.
    let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let expressions = page
        .lines()
        .filter(|l| l.starts_with("* "))
        .flat_map(|l| l.split(word));
    for name in expressions.filter(|w| w.starts_with("forebay_")) {
        let known = forebay_node::metrics::METRICS
            .iter()
            .any(|m| m.name == name);
        assert!(known, "the page names {name}");
    }
}

#[test]
fn metrics_are_named_by_the_rules_of_prometheus() {
    let mut names: Vec<&str> = Vec::new();
    for metric in forebay_node::metrics::METRICS {
        let name = metric.name;
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(
            name.starts_with("forebay_") && name.chars().all(plain),
            "{name}"
        );
        assert!(!metric.help.ends_with('.'), "{name}");
        let units = ["kilo", "mega", "milli", "_ms", "_kb", "_mb"];
        assert!(
            !units.iter().any(|u| name.contains(u)),
            "base units: {name}"
        );
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let taken = ["_count", "_sum", "_bucket", "_created"];
        assert!(!taken.iter().any(|t| stem.ends_with(t)), "{name}");
        names.push(name);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), forebay_node::metrics::METRICS.len());
}

/// The words of a line as a shell makes them, without what follows in the line.
fn words(line: &str) -> Vec<String> {
    let ends = [" #", " | ", " > ", " && ", "; ", " & "];
    let end = ends.iter().filter_map(|mark| line.find(mark)).min();
    let line = &line[..end.unwrap_or(line.len())];
    let script = format!("printf '%s\\n' {line}");
    let _turn = turns::shared();
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_string).collect()
}

#[test]
fn the_commands_in_the_pages_are_understood() {
    let docs = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|e| e.unwrap().path());
    let pages = docs.chain(PAGES.map(|p| root().join(p)));
    let mut understood = 0;
    for page in pages.filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        // Every other part is a block of code.
        let blocks = text.split("```").skip(1).step_by(2);
        let whole = blocks.flat_map(|b| {
            let lines = b.replace("\\\n", " ");
            let lines = lines
                .lines()
                .map(|l| l.trim_start_matches("$ ").to_string());
            lines.collect::<Vec<_>>()
        });
        for line in whole.filter(|l| l.starts_with("forebay ")) {
            let args = words(&line);
            if let Err(e) = forebay_cli::args::Cli::try_parse_from(&args) {
                panic!("{}: {line}\n{args:?}\n{e}", page.display());
            }
            understood += 1;
        }
    }
    assert!(understood > 20, "{understood} commands were found");
}

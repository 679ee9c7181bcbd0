//! What a running service tells of itself: the metrics over TCP and over a Unix socket are those of `forebay status`, and
//! both change with what is done; `--watch` goes on until it is told to stop.
use crate::common::{Place, assert_fails, command, forebay, has_fuse};
use forebay_node::metrics::METRICS;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn get(mut stream: impl Read + Write) -> String {
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    body.to_string()
}

/// Samples by name and labels, as they are written.
fn samples(body: &str) -> BTreeMap<String, f64> {
    let lines = body.lines().filter(|l| !l.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_string(), value.parse().unwrap())
        })
        .collect()
}

fn status(place: &Place) -> serde_json::Value {
    let (code, out, err) = forebay(&["status", &place.store(), "--json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

/// The figures of the status under the names of the samples.
const SAME: [(&str, &str); 19] = [
    ("forebay_files", "files"),
    ("forebay_logical_bytes", "logical_bytes"),
    ("forebay_extents", "extents"),
    ("forebay_patterns", "patterns"),
    ("forebay_pattern_extents", "pattern_extents"),
    ("forebay_data_bytes", "data_bytes"),
    ("forebay_stored_bytes", "stored_bytes"),
    ("forebay_disk_bytes", "disk_bytes"),
    ("forebay_open_files", "open_files"),
    ("forebay_written_bytes_total", "written_bytes"),
    ("forebay_read_bytes_total", "read_bytes"),
    ("forebay_segments", "segments"),
    ("forebay_memory_budget_bytes", "memory_budget"),
    ("forebay_index_put_records_total", "/index/puts"),
    ("forebay_index_table_bytes", "/index/table_bytes"),
    ("forebay_index_runs", "/index/runs"),
    ("forebay_index_found_extents_total", "/index/records_found"),
    ("forebay_index_read_regions_total", "/index/rounds"),
    ("forebay_index_read_bytes_total", "/index/bytes_read"),
];

/// Waits until status and metrics agree, and the written bytes of both members are these.
fn agree(place: &Place, scrape: &dyn Fn() -> String, written: [u64; 2], logical: u64) {
    let until = Instant::now() + LONG;
    loop {
        let (status, samples) = (status(place), samples(&scrape()));
        let members = status["members"].as_array().unwrap();
        let differs = |k: usize, (name, key): &(&str, &str)| {
            let sample = samples.get(&format!("{name}{{member=\"{k}\"}}"));
            let figure = match key.starts_with('/') {
                true => members[k].pointer(key),
                false => members[k].get(key),
            };
            sample.copied() != figure.and_then(|f| f.as_f64()) || sample.is_none()
        };
        let different: Vec<_> = (0..2)
            .flat_map(|k| SAME.iter().map(move |same| (k, same)))
            .filter(|(k, same)| differs(*k, same))
            .collect();
        let bytes = |k: usize| members[k]["written_bytes"].as_u64().unwrap();
        let as_told = [bytes(0), bytes(1)] == written
            && status["total"]["logical_bytes"].as_u64() == Some(logical);
        if different.is_empty() && as_told {
            return;
        }
        assert!(
            Instant::now() < until,
            "{different:?} in {status}\n{samples:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn every_metric_is_there_and_no_other(body: &str) {
    let names: Vec<&str> = METRICS.iter().map(|m| m.name).collect();
    let mut described = Vec::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            described.push(rest.split(' ').next().unwrap());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(names.contains(&name), "{line}");
            let family = name.strip_suffix("_total").unwrap_or(name);
            assert_eq!(described.last(), Some(&family), "{line}");
        }
    }
    for metric in METRICS {
        // A service of one process has no peers.
        let there = body.lines().any(|l| l.starts_with(metric.name));
        assert_eq!(there, !metric.name.contains("_peer_"), "{}", metric.name);
        assert!(
            !there || body.contains(&format!("{} ", metric.help)) || body.contains(metric.help)
        );
    }
}

#[test]
fn metrics_over_tcp_and_unix_are_those_of_status_and_change_with_what_is_written() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2", "--metrics", "127.0.0.1:0"]);
    let url = status(&place)["processes"][0]["metrics"].clone();
    let url = url.as_str().unwrap().to_string();
    let at = url.strip_prefix("http://").unwrap();
    let at = at.strip_suffix("/metrics").unwrap().to_string();
    assert!(at.starts_with("127.0.0.1:"), "{url}");
    let scrape = || get(TcpStream::connect(&at).unwrap());
    agree(&place, &scrape, [0, 0], 0);
    std::fs::write(place.path("m/0/a"), vec![7; 300_000]).unwrap();
    std::fs::write(place.path("m/1/b"), vec![8; 50_001]).unwrap();
    agree(&place, &scrape, [300_000, 50_001], 350_001);
    every_metric_is_there_and_no_other(&scrape());
    let (_, out, _) = forebay(&["status", &place.store()]);
    assert!(out.contains(&url), "{out}");
    place.umount_well();
    assert!(TcpStream::connect(&at).is_err(), "nobody answers any more");

    let socket = place.path("metrics-{rank}");
    let setting = format!("unix:{}", socket.display());
    place.mount_well(&["--nodes", "2", "--metrics", &setting]);
    let socket = place.path("metrics-0");
    let scrape = || get(UnixStream::connect(&socket).unwrap());
    agree(&place, &scrape, [0, 0], 350_001);
    std::fs::remove_file(place.path("m/1/a")).unwrap();
    agree(&place, &scrape, [0, 0], 50_001);
    place.umount_well();
    assert!(!socket.exists());
}

#[test]
fn an_address_for_all_is_refused_and_one_in_use_stops_the_start() {
    let place = Place::new();
    let got = place.mount(&["--metrics", "0.0.0.0:9470"]);
    assert_fails(&got, 2, &["--metrics", "other machines", "127.0.0.1:9470"]);
    assert!(!place.path("s").exists(), "nothing was begun");
    if !has_fuse() {
        return;
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let got = place.mount(&["--metrics", &at]);
    assert_fails(&got, 1, &[&at, "choose another port"]);
    let all = forebay_node::mount_table::all().unwrap();
    assert!(!all.iter().any(|m| m.point.starts_with(place.path(""))));
    place.mount_well(&[]);
    place.umount_well();
}

/// Starts `forebay status --watch` with these arguments, its output piped.
fn watch(place: &Place, args: &[&str]) -> Child {
    let store = place.store();
    let args = [&["status", &store][..], args].concat();
    command(&args).stdout(Stdio::piped()).spawn().unwrap()
}

fn interrupt(mut child: Child) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn watching_shows_rates_since_the_last_look_and_ends_well() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    let mut child = watch(&place, &["--json", "--watch=0.2"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    next();
    std::fs::write(place.path("m/1/a"), vec![7; 1 << 20]).unwrap();
    let until = Instant::now() + LONG;
    loop {
        let look = next();
        let rates = &look["members"][1]["rates"];
        if rates["written_bytes"].as_f64().unwrap() > 0.0 {
            let seconds = rates["seconds"].as_f64().unwrap();
            let written = rates["written_bytes"].as_f64().unwrap() * seconds;
            assert!(written <= (1 << 20) as f64 + 1.0, "{look}");
            assert_eq!(look["members"][0]["rates"]["written_bytes"], 0.0);
            break;
        }
        assert!(Instant::now() < until, "{look}");
    }
    // Once nothing is written any more, the rate goes back to nothing.
    while next()["total"]["rates"]["written_bytes"] != 0.0 {
        assert!(Instant::now() < until);
    }
    interrupt(child);

    let mut child = watch(&place, &["--watch=0.1"]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let heads = lines.map(Result::unwrap).filter(|l| l.contains("logical"));
    assert_eq!(heads.take(3).count(), 3, "a block for each look");
    // Who read it is gone: it ends by itself.
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let (code, _, err) = forebay(&["status", &place.store(), "--watch=0.01"]);
    assert!(code == 2 && err.contains("too short"), "{err}");
    place.umount_well();
}

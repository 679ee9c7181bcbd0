//! What four servers over MPI tell of themselves and of each other: the status asked of any of them, the metrics of each, and
//! why they do not stop.
//!
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.
use crate::common::left::nothing;
use crate::common::mpi::{N, args, job_place, logs};
use crate::common::{Place, assert_fails, command, forebay};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(120);

/// Four servers with metrics, for as long as the job is not ended.
fn start(place: &Place) -> Child {
    let metrics = format!("unix:{}", place.text("metrics{rank}"));
    let args = args(
        place,
        &["--metrics", &metrics],
        "echo ready; sleep 1000; true",
    );
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{}", logs(place));
    child
}

fn end(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

fn status(place: &Place, node: usize) -> serde_json::Value {
    let (code, out, err) = forebay(&["status", &place.text(&format!("n{node}")), "--json"]);
    assert_eq!(code, 0, "{err}{}", logs(place));
    serde_json::from_str(&out).unwrap()
}

/// The samples of one server: names and labels as they are written, and the value.
fn scrape(place: &Place, node: usize) -> String {
    let mut stream = UnixStream::connect(place.path(&format!("metrics{node}"))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    answer
}

fn health(of: &serde_json::Value, process: usize, peer: u64) -> String {
    let peers = of["processes"][process]["peers"].as_array().unwrap();
    let peer = peers.iter().find(|p| p["member"] == peer).unwrap();
    peer["health"].as_str().unwrap().to_string()
}

#[test]
fn any_server_tells_of_all_and_each_serves_its_own_metrics() {
    let Some(place) = job_place() else { return };
    let child = start(&place);
    for k in 0..N {
        let content = vec![7; 100_000 + k];
        std::fs::write(place.path(&format!("m{k}/f{k}")), content).unwrap();
    }
    for asked in 0..N {
        let status = status(&place, asked);
        let members = status["members"].as_array().unwrap();
        assert_eq!(members.len(), N, "{status}");
        let mut pids = Vec::new();
        for (k, member) in members.iter().enumerate() {
            assert_eq!(member["member"], k);
            assert_eq!(member["written_bytes"], 100_000 + k);
            assert_eq!(status["mounts"][k]["path"], place.text(&format!("m{k}")));
            let process = &status["processes"][k];
            assert_eq!(process["members"][0], k);
            pids.push(process["pid"].as_u64().unwrap());
            for peer in (0..N).filter(|p| *p != k) {
                assert_eq!(health(&status, k, peer as u64), "alive");
            }
        }
        assert_eq!(status["pid"], pids[asked], "the one that was asked");
        pids.dedup();
        assert_eq!(pids.len(), N);
        assert!(status["missing"].as_object().unwrap().is_empty());
        assert_eq!(status["total"]["written_bytes"], 400_006);
    }
    for k in 0..N {
        let samples = scrape(&place, k);
        let line = |start: String| {
            let line = samples.lines().find(|l| l.starts_with(&start));
            line.unwrap_or_else(|| panic!("{start} in {samples}"))
                .to_string()
        };
        let written = line("forebay_written_bytes_total".into());
        let own = format!(
            "forebay_written_bytes_total{{member=\"{k}\"}} {}",
            100_000 + k
        );
        assert_eq!(written, own);
        for peer in (0..N).filter(|p| *p != k) {
            let name = format!("forebay_peer_alive{{member=\"{k}\",peer=\"{peer}\"}}");
            assert_eq!(line(name.clone()), format!("{name} 1"));
        }
    }
    let (code, out, _) = forebay(&["status", &place.text("m1")]);
    assert_eq!(code, 0);
    for k in 0..N {
        let mount = place.text(&format!("m{k}"));
        let lines = out.lines().filter(|l| l.starts_with(&format!("{k} ")));
        assert_eq!(lines.clone().count(), 2, "a line in each block: {out}");
        assert!(
            lines
                .clone()
                .any(|l| l.contains(&mount) && l.contains("alive"))
        );
    }

    // A file that is open on another node speaks against stopping, and the refusal says where.
    let held = std::fs::File::create(place.path("m2/held")).unwrap();
    let refused = forebay(&["umount", &place.text("m0")]);
    let by = format!("pid {}", std::process::id());
    assert_fails(&refused, 1, &["node 2 on ", "m2", &by, "--force"]);
    drop(held);
    assert_eq!(status(&place, 3)["members"].as_array().unwrap().len(), N);
    end(child);
    nothing(&place);
    for k in 0..N {
        assert!(!place.path(&format!("metrics{k}")).exists());
    }
}

#[test]
fn a_server_that_is_stopped_is_missing_and_then_dead_and_the_others_are_shown() {
    let Some(place) = job_place() else { return };
    let child = start(&place);
    let before = status(&place, 0);
    let pid = before["processes"][3]["pid"].as_u64().unwrap();
    let pid = Pid::from_raw(pid as i32).unwrap();
    forebay_testkit::stopped::stop_process(pid);
    let until = Instant::now() + LONG;
    let dead = loop {
        let now = status(&place, 1);
        let members = now["members"].as_array().unwrap();
        let missing = &now["missing"]["3"];
        if members.len() == N - 1 {
            assert!(
                missing["why"].as_str().unwrap().contains("member 3"),
                "{now}"
            );
            assert!(members.iter().all(|m| m["member"] != 3));
            let all_say_so = (0..N - 1).all(|k| health(&now, k, 3) == "dead");
            if missing["health"] == "dead" && all_say_so {
                break now;
            }
        }
        assert!(Instant::now() < until, "{now}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(health(&dead, 0, 2), "alive");
    let (code, out, _) = forebay(&["status", &place.text("n2")]);
    assert_eq!(code, 0);
    let line = out.lines().find(|l| l.starts_with("3 ")).unwrap();
    assert!(line.contains("dead ") && line.ends_with(" s"), "{out}");
    assert!(out.contains("node 3 is missing: "), "{out}");
    let samples = scrape(&place, 0);
    let lost = "forebay_peer_alive{member=\"0\",peer=\"3\"} 0";
    assert!(samples.contains(lost), "{samples}");
    kill_process(pid, Signal::KILL).unwrap();
    end(child);
    for k in 0..N {
        // What was killed could not remove them.
        let _ = std::fs::remove_file(place.path(&format!("n{k}/control")));
    }
    nothing(&place);
}

#[test]
fn servers_that_share_a_port_for_metrics_do_not_start_and_say_why() {
    let Some(place) = job_place() else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let args = args(&place, &["--metrics", &at], "echo never");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, out, err) = forebay(&args);
    assert_eq!((code, &*out), (1, ""), "{err}");
    let said = err.lines().find(|l| l.starts_with("forebay: "));
    let said = said.unwrap_or_else(|| panic!("{err}"));
    assert!(said.contains(&at) && said.contains("+{rank}"), "{err}");
    nothing(&place);
}

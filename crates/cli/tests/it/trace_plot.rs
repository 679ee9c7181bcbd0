//! Plots: drawings and pictures hold what they should, and the page works in a real browser.
use crate::common::{Place, assert_fails, forebay, run};
use forebay_testkit::prerequisites::{program, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Three calls of two ranks on one file, and one of another kind.
const TRACE: &str = "rank,op,file_id,offset,length,start,end
0,write,0,0,1048576,0.000000,0.100000
1,write,0,4194304,1048576,0.400000,0.600000
0,write,0,9437184,1048576,0.900000,1.000000
1,read,0,0,1000,2.000000,2.500000
";

fn place() -> Place {
    let place = Place::new();
    std::fs::write(place.path("t.csv"), TRACE).unwrap();
    std::fs::write(
        place.path("t.files.csv"),
        "file_id,record_id,basename\n0,0,run/<a>.h5\n",
    )
    .unwrap();
    place
}

#[test]
fn a_trace_is_drawn_in_every_form_that_is_named() {
    let place = place();
    let [trace, svg, png, html] = ["t.csv", "p.svg", "p.png", "p.html"].map(|f| place.text(f));
    let (code, _, err) = forebay(&["trace", "plot", &trace, "-o", &svg, "-o", &png, "-o", &html]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(err.matches("4 calls of 2 ranks").count(), 3, "{err}");
    let drawing = std::fs::read_to_string(&svg).unwrap();
    assert!(drawing.contains("run/&lt;a&gt;.h5, writes: 3 calls of 2 ranks, 3 MiB"));
    let picture = std::fs::read(&png).unwrap();
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
    // Width and height of its header: twice the drawing's.
    assert_eq!(
        u32::from_be_bytes(picture[16..20].try_into().unwrap()),
        1920
    );
    assert!(
        picture.len() > 20_000,
        "there is text and more on it: {}",
        picture.len()
    );
    let (code, _, err) = forebay(&["trace", "plot", &trace, "--kind", "read", "-o", &svg]);
    assert_eq!(code, 0, "{err}");
    assert!(!std::fs::read_to_string(&svg).unwrap().contains("writes"));
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let place = place();
    let [trace, pdf, svg] = ["t.csv", "p.pdf", "p.svg"].map(|f| place.text(f));
    assert_fails(
        &forebay(&["trace", "plot", &trace, "-o", &pdf]),
        2,
        &["p.pdf", ".png"],
    );
    let none = forebay(&["trace", "plot", &trace, "--ranks", "7-9", "-o", &svg]);
    assert_fails(&none, 1, &["nothing to draw", "trace stats"]);
    std::fs::write(place.path("bad.csv"), TRACE.replace("9437184", "much")).unwrap();
    let bad = forebay(&["trace", "plot", &place.text("bad.csv"), "-o", &svg]);
    assert_fails(&bad, 1, &["bad.csv", "line 4", "field 4 (offset)"]);
    assert!(!Path::new(&svg).exists());
}

/// A browser without a window, if there is one. Fails instead where there must be.
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find_map(program);
    if found.is_none() {
        skip("PROGRAMS", "there is no chromium");
    }
    found
}

/// What a person would do, as events; what the page shows after each goes into an element of its own.
const PROBE: &str = r#"<script>
(() => {
  const plot = document.getElementById("plot"), tip = document.getElementById("tip"), seen = {};
  const box = plot.getBoundingClientRect();
  const state = () => {
    const { x0, x1, y0, y1, drawn } = plot.dataset;
    return { x0: +x0, x1: +x1, y0: +y0, y1: +y1, drawn: +drawn, note: document.getElementById("note").textContent };
  };
  // Where a moment (ns) and an offset lie, as the axes say: margins of 84, 16, 8 and 44 pixels.
  const at = (x, y) => {
    const s = state();
    return { clientX: box.left + 84 + (x - s.x0) / (s.x1 - s.x0) * (box.width - 100),
      clientY: box.top + box.height - 44 - (y - s.y0) / (s.y1 - s.y0) * (box.height - 52) };
  };
  const send = (Kind, type, place, more = {}) =>
    plot.dispatchEvent(new Kind(type, { bubbles: true, cancelable: true, ...place, ...more }));
  seen.start = state();
  send(PointerEvent, "pointermove", at(5e8, 4.5 * 1048576));
  seen.tip = tip.hidden ? "" : tip.textContent;
  send(PointerEvent, "pointermove", at(5e8, 8 * 1048576));
  seen.nothing = tip.hidden;
  send(WheelEvent, "wheel", at(5e8, 4.5 * 1048576), { deltaY: -1 });
  for (let i = 0; i < 5; i++) send(WheelEvent, "wheel", at(5e8, 4.5 * 1048576), { deltaY: -1 });
  seen.zoomed = state();
  send(PointerEvent, "pointerdown", at(5e8, 4.5 * 1048576));
  send(PointerEvent, "pointermove", at(5.5e8, 4.5 * 1048576));
  window.dispatchEvent(new PointerEvent("pointerup"));
  seen.moved = state();
  send(MouseEvent, "dblclick", at(5e8, 4.5 * 1048576));
  seen.again = state();
  send(PointerEvent, "pointerdown", at(3e8, 4 * 1048576), { shiftKey: true });
  send(PointerEvent, "pointermove", at(7e8, 5 * 1048576), { shiftKey: true });
  window.dispatchEvent(new PointerEvent("pointerup"));
  seen.boxed = state();
  document.getElementById("all").click();
  const ranks = document.getElementById("ranks");
  ranks.value = "0";
  ranks.dispatchEvent(new Event("input"));
  seen.rank0 = state();
  ranks.value = "";
  ranks.dispatchEvent(new Event("input"));
  const select = document.getElementById("panel");
  seen.panels = [...select.options].map((o) => o.text);
  select.value = 1;
  select.dispatchEvent(new Event("change"));
  seen.second = state();
  // A pixel of the plot in a colour of a rank: something is drawn there.
  select.value = 0;
  select.dispatchEvent(new Event("change"));
  const middle = at(5e8, 4.5 * 1048576), ratio = plot.width / box.width;
  const pixel = plot.getContext("2d").getImageData((middle.clientX - box.left) * ratio, (middle.clientY - box.top) * ratio, 1, 1);
  seen.pixel = [...pixel.data];
  const result = document.createElement("pre");
  result.id = "seen";
  result.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
  document.body.append(result);
})();
</script></body>"#;

#[test]
fn the_page_zooms_moves_and_tells_in_a_real_browser() {
    let Some(browser) = browser() else { return };
    let place = place();
    let (trace, html) = (place.text("t.csv"), place.text("p.html"));
    let (code, _, err) = forebay(&["trace", "plot", &trace, "-o", &html]);
    assert_eq!(code, 0, "{err}");
    let page = std::fs::read_to_string(&html).unwrap();
    let probed = place.path("probed.html");
    std::fs::write(&probed, page.replace("</body>", PROBE)).unwrap();
    let show = |page: String| {
        run(Command::new(&browser).args([
            "--headless".to_string(),
            // It looks at a file of our own, and a test may run as root.
            "--no-sandbox".into(),
            "--disable-gpu".into(),
            "--disable-dev-shm-usage".into(),
            "--window-size=1000,700".into(),
            format!("--user-data-dir={}", place.text("profile")),
            "--dump-dom".into(),
            page,
        ]))
    };
    // Some machines have a browser that cannot start at all, for what they allow a process.
    if !String::from_utf8_lossy(&show("about:blank".into()).stdout).contains("<body>") {
        eprintln!("skipped: {} does not start here", browser.display());
        return;
    }
    let output = show(format!("file://{}", probed.display()));
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom
        .split_once("<pre id=\"seen\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let (seen, _) =
        found.unwrap_or_else(|| panic!("{dom}\n{}", String::from_utf8_lossy(&output.stderr)));
    let seen: serde_json::Value = serde_json::from_slice(&decode(seen)).unwrap();
    let number = |state: &str, name: &str| seen[state][name].as_f64().unwrap();
    let range = |state: &str| ["x0", "x1", "y0", "y1"].map(|name| number(state, name));

    assert_eq!(number("start", "drawn"), 3.0, "{seen}");
    let [x0, x1, y0, y1] = range("start");
    assert!(
        x0 <= 0.0 && x1 >= 1e9 && y0 <= 0.0 && y1 >= 10.0 * 1048576.0,
        "{seen}"
    );
    let tip = seen["tip"].as_str().unwrap();
    for part in [
        "rank 1",
        "write of 1,048,576 B (1 MiB)",
        "offset 4,194,304 B (4 MiB)",
        "from 400 ms, took 200 ms",
    ] {
        assert!(tip.contains(part), "{part} in {tip}");
    }
    assert_eq!(seen["nothing"], true);
    // Closer, around the pointer: only the call under it is in view.
    let zoomed = range("zoomed");
    assert!(
        zoomed[1] - zoomed[0] < (x1 - x0) / 4.0 && zoomed[0] < 5e8 && zoomed[1] > 5e8,
        "{seen}"
    );
    assert_eq!(number("zoomed", "drawn"), 1.0, "{seen}");
    let moved = range("moved");
    assert!(
        moved[0] < zoomed[0] && (moved[1] - moved[0] - zoomed[1] + zoomed[0]).abs() < 1.0,
        "{seen}"
    );
    assert_eq!(seen["again"], seen["start"]);
    let boxed = range("boxed");
    assert!(
        (boxed[0] - 3e8).abs() < 1e6 && (boxed[1] - 7e8).abs() < 1e6,
        "{seen}"
    );
    assert_eq!(number("rank0", "drawn"), 2.0, "{seen}");
    assert_eq!(seen["panels"][0], "run/<a>.h5, writes: 3 calls", "{seen}");
    assert_eq!(number("second", "drawn"), 1.0, "{seen}");
    // The second colour of the palette, over white.
    assert_eq!(
        seen["pixel"],
        serde_json::json!([213, 94, 0, 255]),
        "{seen}"
    );
}

/// What `btoa` wrote.
fn decode(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|b| DIGITS.iter().position(|d| *d == b))
        .map(|d| d as u32)
        .collect();
    let mut bytes = Vec::new();
    for part in digits.chunks(4) {
        let all = part.iter().fold(0, |n, d| n << 6 | d) << (6 * (4 - part.len()));
        bytes.extend(&all.to_be_bytes()[1..part.len()]);
    }
    bytes
}

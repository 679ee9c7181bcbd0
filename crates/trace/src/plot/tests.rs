//! What is selected is in the chart; what is in the chart is in the drawing and on the page.
use super::colour::colour;
use super::page::page_of;
use super::*;
use crate::{Action, Process, TraceFile};

fn call(rank: u32, action: Action, file: u32, offset: u64, start: u64) -> Call {
    Call {
        rank,
        action,
        file,
        offset,
        len: 100,
        start,
        end: start + 50,
        error: 0,
    }
}

fn recording() -> Recording {
    use Action::{Open, Read, Write};
    let mut failed = call(1, Write, 0, 900, 900);
    failed.error = 5;
    Recording {
        name: "a <b> & c".into(),
        ranks: 3,
        processes: [(
            1,
            Process {
                program: "sim".into(),
                pid: 7,
                host: "h".into(),
                ..Process::default()
            },
        )]
        .into(),
        files: ["d/x", "d/y"].map(TraceFile::named).to_vec(),
        calls: vec![
            call(0, Open, 0, 32769, 5),
            call(0, Write, 0, 0, 1000),
            call(1, Write, 0, 200, 1500),
            call(0, Write, 0, 4096, 2000),
            call(2, Read, 1, 0, 3000),
            call(2, Read, 1, NO_OFFSET, 3500),
            failed,
        ],
        ..Recording::default()
    }
}

#[test]
fn a_panel_has_the_calls_of_one_kind_on_one_file() {
    let chart = Chart::of(&recording(), &Selection::default());
    let panels: Vec<_> = chart
        .panels
        .iter()
        .map(|p| (p.name.as_str(), p.kind, p.marks.len(), p.bytes, p.ranks))
        .collect();
    assert_eq!(
        panels,
        [
            ("d/x", Kind::Write, 3, 300, 2),
            ("d/y", Kind::Read, 1, 100, 1)
        ]
    );
    let second = CallMark {
        rank: 1,
        left: 500,
        right: 550,
        low: 200,
        high: 300,
    };
    assert_eq!((chart.begin, chart.panels[0].marks[1]), (1000, second));
}

#[test]
fn files_kinds_and_ranks_are_selected() {
    let marks = |selection: Selection| {
        let chart = Chart::of(&recording(), &selection);
        chart.panels.iter().map(|p| p.marks.len()).sum::<usize>()
    };
    let file = |name: &str| Selection {
        file: Some(name.into()),
        ..Selection::default()
    };
    assert_eq!(["d/x", "x", "0"].map(|f| marks(file(f))), [3; 3]);
    assert_eq!(marks(file("/y")), 0, "a part of a name is no name");
    let kind = Some(Kind::Read);
    assert_eq!(
        marks(Selection {
            kind,
            ..Selection::default()
        }),
        1
    );
    let ranks = Some(1..=2);
    assert_eq!(
        marks(Selection {
            ranks,
            ..Selection::default()
        }),
        2
    );
}

#[test]
fn calls_can_be_counted_instead_of_timed() {
    let horizontal = Horizontal::Calls;
    let chart = Chart::of(
        &recording(),
        &Selection {
            horizontal,
            ..Selection::default()
        },
    );
    let lefts: Vec<u64> = chart.panels[0].marks.iter().map(|m| m.left).collect();
    assert_eq!(lefts, [0, 0, 1]);
}

#[test]
fn a_drawing_has_a_rectangle_a_call_and_is_sound_xml() {
    let chart = Chart::of(&recording(), &Selection::default());
    let drawing = chart.svg();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    assert!(drawing.contains("a &lt;b&gt; &amp; c"), "{drawing}");
    assert!(drawing.contains("d/x, writes: 3 calls of 2 ranks, 300 B"));
    // Each call is a path's part, a rectangle that ends with z.
    assert_eq!(
        drawing.matches('z').count() - drawing.matches("size").count(),
        4
    );
    for unit in ["time (ns)", "offset (KiB)", "offset (B)", "rank 1: sim"] {
        assert!(drawing.contains(unit), "{unit} in {drawing}");
    }
    let none = Chart::of(&Recording::default(), &Selection::default());
    assert!(none.svg().contains("no reads or writes"));
}

#[test]
fn a_drawing_of_many_calls_stays_small() {
    let mut recording = recording();
    recording.ranks = 500;
    recording.calls = (0..300_000u64)
        .map(|i| {
            call(
                (i % 500) as u32,
                Action::Write,
                0,
                i * 7919 % 300_000 * 100,
                i * 60,
            )
        })
        .collect();
    let chart = Chart::of(&recording, &Selection::default());
    let drawing = chart.svg();
    assert!(drawing.contains("300,000 calls of 500 ranks"));
    assert!(drawing.len() < 3 << 20, "{} bytes", drawing.len());
}

#[test]
fn ranks_have_colours_of_their_own() {
    let few: BTreeSet<_> = (0..8).map(|i| colour(i, 8)).collect();
    let many: BTreeSet<_> = (0..64).map(|i| colour(i, 64)).collect();
    assert_eq!((few.len(), many.len()), (8, 64));
    assert_eq!(colour(1023, 1024), colour(63, 64));
}

#[test]
fn a_page_needs_nothing_else_and_says_what_it_leaves_out() {
    let chart = Chart::of(&recording(), &Selection::default());
    let page = chart.page();
    assert!(page.contains("<title>a &lt;b&gt; &amp; c</title>"));
    assert!(page.contains("\"name\":\"a \\u003cb> & c\""), "{page}");
    for outside in ["http://", "https://", "src=", "href=", "{{"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("\"omitted\":0"));
    assert!(page_of(&chart, 2).contains("\"omitted\":1"));
}

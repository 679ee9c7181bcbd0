//! A chart as one page that needs nothing else: data, drawing and tooltips in one file.
//!
//! The calls are six columns of differences as varints, as in the trace format, in base64. The page reads them, draws what is in
//! view on a canvas, and says what is under the pointer.

use super::Chart;
use super::colour::{colour, hex};
use crate::format::put_difference;
use serde::Serialize;

/// The page, with a place for the title and one for the data.
const PAGE: &str = include_str!("page.html");
/// The script of the page.
const SCRIPT: &str = include_str!("page.js");
/// Most calls on a page; it would take a browser long to draw more.
const MOST_CALLS: usize = 2_000_000;

#[derive(Serialize)]
struct PageData<'a> {
    name: &'a str,
    /// Whether the horizontal axis is time.
    time: bool,
    /// Calls of the trace that are not on the page.
    omitted: usize,
    ranks: Vec<RankData<'a>>,
    panels: Vec<PanelData<'a>>,
}

#[derive(Serialize)]
struct RankData<'a> {
    rank: u32,
    name: &'a str,
    colour: String,
}

#[derive(Serialize)]
struct PanelData<'a> {
    name: &'a str,
    kind: &'static str,
    calls: usize,
    /// Rank's place in `ranks`, left, right - left, low, high - low: differences to the call before.
    marks: String,
}

impl Chart {
    /// As an HTML page. With more than two million calls it has every second, third and so on, and says so.
    pub fn page(&self) -> String {
        page_of(self, MOST_CALLS)
    }
}

pub(super) fn page_of(chart: &Chart, most: usize) -> String {
    let total: usize = chart.panels.iter().map(|p| p.marks.len()).sum();
    let every = total.div_ceil(most.max(1)).max(1);
    let order: Vec<u32> = chart.ranks.keys().copied().collect();
    let ranks = chart.ranks.iter().enumerate();
    let ranks = ranks.map(|(index, (rank, name))| RankData {
        rank: *rank,
        name,
        colour: hex(colour(index, order.len())),
    });
    let mut kept = 0;
    let mut panels = Vec::new();
    for panel in &chart.panels {
        let mut out = Vec::new();
        let mut before = [0u64; 5];
        for mark in panel.marks.iter().step_by(every) {
            let index = order.binary_search(&mark.rank).unwrap_or(0);
            let now = [
                index as u64,
                mark.left,
                mark.right - mark.left,
                mark.low,
                mark.high - mark.low,
            ];
            for (now, before) in now.iter().zip(&before) {
                put_difference(&mut out, *now, *before);
            }
            before = now;
        }
        kept += panel.marks.len().div_ceil(every);
        panels.push(PanelData {
            name: &panel.name,
            kind: panel.kind_name(),
            calls: panel.marks.len(),
            marks: base64(&out),
        });
    }
    let data = PageData {
        name: &chart.name,
        time: chart.horizontal == super::Horizontal::Time,
        omitted: total - kept,
        ranks: ranks.collect(),
        panels,
    };
    // Serialising strings and numbers into memory does not fail; an empty page would say so.
    let data = serde_json::to_string(&data).unwrap_or_default();
    // Inside a script nothing may look like a tag.
    let data = data.replace('<', "\\u003c");
    let page = PAGE.replace("{{title}}", &super::svg::escape(chart.title()));
    let (head, rest) = page.split_once("{{data}}").unwrap_or((&page, ""));
    let (between, tail) = rest.split_once("{{script}}").unwrap_or((rest, ""));
    [head, &data, between, SCRIPT, tail].concat()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |i: usize| u32::from(part.get(i).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            match i <= part.len() {
                true => out.push(DIGITS[(all >> (18 - 6 * i) & 63) as usize] as char),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_as_everybody_writes_it() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}

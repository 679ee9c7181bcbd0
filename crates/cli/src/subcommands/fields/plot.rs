//! Ratio against decode speed, a point for each codec, over all files together.
use super::report::{CodecReport, FieldsReport};
use forebay_node::units::{counted, size};
use forebay_trace::plot::axis::Axis;
use forebay_trace::plot::svg::{Anchor, PointShape, Stroke, Svg, TextStyle, text_width};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 56.0;
const TEXT: f64 = 11.0;
const OURS: &str = "#0072b2";
const AUTO: &str = "#d55e00";
const OTHERS: &str = "#777777";
const TITLE: TextStyle = TextStyle::new(Anchor::Middle, 14.0).bold();
const SMALL: TextStyle = TextStyle::new(Anchor::Middle, TEXT);
const LABEL: TextStyle = TextStyle::new(Anchor::Start, TEXT);
const BESIDE: TextStyle = TextStyle::new(Anchor::End, TEXT);

/// A codec over all files.
struct Sum {
    codec: &'static str,
    raw: f64,
    encoded: f64,
    seconds: f64,
}

impl Sum {
    fn ratio(&self) -> f64 {
        self.raw / self.encoded.max(1.0)
    }

    fn decode(&self) -> f64 {
        (self.raw / self.seconds.max(1e-12)).max(1.0)
    }
}

fn sums(report: &FieldsReport) -> Vec<Sum> {
    let mut sums: Vec<Sum> = Vec::new();
    for file in &report.files {
        let mut add = |codec: &CodecReport| {
            let raw = file.sampled_bytes as f64;
            let (encoded, seconds) = (codec.encoded_bytes as f64, raw / codec.decode_bytes_per_s);
            match sums.iter_mut().find(|sum| sum.codec == codec.codec) {
                Some(sum) => {
                    sum.raw += raw;
                    sum.encoded += encoded;
                    sum.seconds += seconds;
                }
                None => sums.push(Sum {
                    codec: codec.codec,
                    raw,
                    encoded,
                    seconds,
                }),
            }
        };
        file.codecs.iter().chain([&file.auto]).for_each(&mut add);
    }
    sums
}

/// The picture.
pub fn svg(report: &FieldsReport) -> String {
    let sums = sums(report);
    let what = match &report.files[..] {
        [one] => one.file.clone(),
        files => counted(files.len() as u64, "file"),
    };
    let sampled: u64 = report.files.iter().map(|file| file.sampled_bytes).sum();
    let title = format!("{what}: ratio and decode speed, {} measured", size(sampled));
    let mut svg = Svg::new(WIDTH, HEIGHT, &title);
    svg.text((WIDTH / 2.0, 22.0), TITLE, &title);
    let ends = |of: fn(&Sum) -> f64| {
        let (mut low, mut high) = (f64::INFINITY, 0f64);
        for value in sums.iter().map(of) {
            (low, high) = (low.min(value), high.max(value));
        }
        (low, high)
    };
    let (slowest, fastest) = ends(Sum::decode);
    let x = Axis::log("decoded bytes a second, one core", slowest, fastest);
    let y = Axis::linear("ratio", ends(Sum::ratio).1);
    let across = |place: f64| LEFT + place * (WIDTH - LEFT - RIGHT);
    let up = |place: f64| HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP);
    let grid = Stroke::solid("#e4e4e4", 1.0);
    for (place, text) in y.ticks() {
        svg.line((LEFT, up(place)), (WIDTH - RIGHT, up(place)), grid);
        svg.text((LEFT - 6.0, up(place) + 4.0), BESIDE, text);
    }
    for (place, text) in x.ticks() {
        svg.line((across(place), TOP), (across(place), HEIGHT - BOTTOM), grid);
        svg.text((across(place), HEIGHT - BOTTOM + 18.0), SMALL, text);
    }
    svg.upright((18.0, (TOP + HEIGHT - BOTTOM) / 2.0), SMALL, y.title());
    svg.text(
        ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0),
        SMALL,
        x.title(),
    );
    let point = |sum: &Sum| (across(x.place(sum.decode())), up(y.place(sum.ratio())));
    // What texts must not cover: left end, base line and width; first the points.
    let mut taken: Vec<(f64, f64, f64)> = sums
        .iter()
        .map(point)
        .map(|(x, y)| (x - 6.0, y + 4.0, 12.0))
        .collect();
    for sum in &sums {
        let at = point(sum);
        let (shape, colour) = match sum.codec {
            "field" => (PointShape::Circle, OURS),
            "auto" => (PointShape::Diamond, AUTO),
            _ => (PointShape::Square, OTHERS),
        };
        svg.point(shape, at, colour);
        let text = format!("{} {:.2}", sum.codec, sum.ratio());
        let (left, base) = label_place(at, text_width(&text, TEXT), &taken);
        taken.push((left, base, text_width(&text, TEXT)));
        svg.text((left, base), LABEL, &text);
    }
    svg.finish()
}

/// Where a text of this width stands beside a point: the nearest place in steps of a line that covers nothing taken.
fn label_place(point: (f64, f64), wide: f64, taken: &[(f64, f64, f64)]) -> (f64, f64) {
    let right = point.0 + 8.0;
    let left = match right + wide > WIDTH {
        true => point.0 - 8.0 - wide,
        false => right,
    };
    let free = |base: f64| {
        (TOP..HEIGHT - BOTTOM).contains(&base)
            && taken.iter().all(|(l, b, w)| {
                (base - b).abs() >= TEXT + 1.0 || left >= l + w || *l >= left + wide
            })
    };
    let steps =
        (0..12).flat_map(|step| [-1.0, 1.0].map(|way| way * f64::from(step) * (TEXT + 1.0)));
    let mut places = steps.map(|step| point.1 + 4.0 + step);
    (
        left,
        places.find(|base| free(*base)).unwrap_or(point.1 + 4.0),
    )
}

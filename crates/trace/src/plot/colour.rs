//! Colours of ranks that colour-blind people can distinguish, too.

/// For up to eight ranks: the palette of Okabe and Ito, with a darker yellow that shows on white.
const FEW: [[u8; 3]; 8] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [86, 180, 233],
    [230, 159, 0],
    [0, 0, 0],
    [160, 140, 0],
];

/// For more ranks: from dark blue to yellow, with lightness that only rises (after viridis, without its lightest end).
const MANY: [[u8; 3]; 6] = [
    [68, 1, 84],
    [65, 68, 135],
    [42, 120, 142],
    [34, 168, 132],
    [122, 209, 81],
    [210, 200, 40],
];

/// How many ranks get colours of their own.
pub(super) const DISTINCT: usize = FEW.len();

/// The colour of the `index`th of `count` ranks: red, green, blue.
pub fn colour(index: usize, count: usize) -> [u8; 3] {
    if count <= DISTINCT {
        return FEW[index % DISTINCT];
    }
    let place = index as f64 / (count - 1) as f64 * (MANY.len() - 1) as f64;
    let lower = (place as usize).min(MANY.len() - 2);
    let share = (place - lower as f64).clamp(0.0, 1.0);
    let mix = |channel: usize| {
        let (a, b) = (MANY[lower][channel], MANY[lower + 1][channel]);
        (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// As SVG and CSS write it.
pub(super) fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

//! Tables and plots of curves, with two logarithmic axes.

use std::fmt::Write as _;

use crate::curves::pictures;

/// One curve of a plot.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// From left to right. All curves of a plot have the same positions.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The title of an axis.
pub(crate) struct Plot {
    /// The file name without extension.
    pub(crate) name: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 250.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 540.0;
const COLOURS: [&str; 3] = ["#1f6feb", "#d1242f", "#1a7f37"];

impl Plot {
    /// Prints the table, and draws the plot if a folder is named.
    pub(crate) fn show(&self) {
        let names: Vec<&str> = self.curves.iter().map(|curve| curve.name.as_str()).collect();
        println!(
            "\n| {} | {} ({}) |\n|---{}|",
            self.x,
            names.join(&format!(" ({}) | ", self.y)),
            self.y,
            "|---".repeat(names.len())
        );
        for (n, (x, _)) in self.curves[0].points.iter().enumerate() {
            let row: Vec<String> = self.curves.iter().map(|curve| figure(curve.points[n].1)).collect();
            println!("| {x} | {} |", row.join(" | "));
        }
        if let Some(folder) = pictures() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{}.svg", self.name)), self.svg()).unwrap();
        }
    }

    fn svg(&self) -> String {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let xs = Axis::over(all().map(|p| p.0), LEFT, RIGHT);
        let ys = Axis::over(all().map(|p| p.1), BOTTOM, TOP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for (value, x) in xs.ticks() {
            let middle = BOTTOM + 16.0;
            writeln!(out, "<path d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/><text x=\"{x:.1}\" y=\"{middle}\" text-anchor=\"middle\">{}</text>", short(value)).unwrap();
        }
        for (value, y) in ys.ticks() {
            let (right, under) = (LEFT - 6.0, y + 4.0);
            writeln!(out, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/><text x=\"{right}\" y=\"{under:.1}\" text-anchor=\"end\">{}</text>", short(value)).unwrap();
        }
        let (middle, low) = ((LEFT + RIGHT) / 2.0, HEIGHT - 14.0);
        writeln!(out, "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text><text x=\"8\" y=\"14\">{}</text>", self.x, self.y).unwrap();
        for (n, (curve, colour)) in self.curves.iter().zip(COLOURS).enumerate() {
            let line: Vec<String> =
                curve.points.iter().map(|p| format!("{:.1},{:.1}", xs.place(p.0), ys.place(p.1))).collect();
            let (x, y) = (LEFT + 12.0, TOP + 14.0 + 15.0 * n as f64);
            writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{}</text>", line.join(" "), curve.name).unwrap();
        }
        out + "</svg>\n"
    }
}

/// The powers of ten on an axis.
struct Axis {
    least: i32,
    most: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let least = values.clone().fold(f64::MAX, f64::min).log10().floor() as i32;
        let most = (values.fold(f64::MIN, f64::max).log10().ceil() as i32).max(least + 1);
        Self { least, most, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.least)) / f64::from(self.most - self.least);
        self.from + (self.to - self.from) * part
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, f64)> {
        (self.least..=self.most).map(|power| 10f64.powi(power)).map(|value| (value, self.place(value)))
    }
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v if v >= 1e3 => format!("{} k", v / 1e3),
        v => format!("{v}"),
    }
}

fn figure(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

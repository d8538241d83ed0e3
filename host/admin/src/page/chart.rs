//! Sparklines, drawn by the server.

use maud::{Markup, html};

/// The size of a sparkline.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 40.0;

/// A sparkline with its largest and its last value as text.
pub(super) fn sparkline(title: &str, values: &[u64], show: impl Fn(u64) -> String) -> Markup {
    let (largest, last) = (values.iter().copied().max().unwrap_or(0), values.last().copied().unwrap_or(0));
    let text = format!("now {}, at most {}", show(last), show(largest));
    html! {
        figure.spark {
            figcaption { (title) " " span.quiet { (text) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label={ (title) ": " (text) } {
                polyline points=(points(values, largest)) {}
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a drawing")]
fn points(values: &[u64], largest: u64) -> String {
    let step = WIDTH / values.len().saturating_sub(1).max(1) as f64;
    let height = |value: u64| HEIGHT - 1.0 - value as f64 / largest.max(1) as f64 * (HEIGHT - 2.0);
    let pairs =
        values.iter().enumerate().map(|(at, value)| format!("{:.0},{:.1}", at as f64 * step, height(*value)));
    pairs.collect::<Vec<_>>().join(" ")
}

/// Forecasts the weather.
#[toolbay_macros::tool]
async fn forecast(#[arg(default = 9, range(max = 7))] days: u32) -> String {
    days.to_string()
}

fn main() {}

//! Declares no capability, but uses secrets, clock and randomness.

use guest::host::secrets::get;
use guest::wasip2::random::random::get_random_u64;
use guest::{text, tool};

guest::tools!(tool("compute", |_| {
    let secret = get("shown").map(|secret| secret.text).map_err(|error| error.to_string());
    text(format!("{secret:?} {:?} {}", std::time::SystemTime::now(), get_random_u64()))
}));

//! What is told of components that are compiled: on a terminal, that it began, that it goes on, and how long it took; to the
//! log otherwise. It happens once for each component and machine, and Python's takes its time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay::{LoadEvent, LoadListener};

use crate::output;

/// After how long it is told that it goes on, and then again.
const AGAIN: Duration = Duration::from_secs(5);
/// What is not worth a word when it is over.
const QUICK: Duration = Duration::from_secs(1);

/// The plugins that are being compiled.
type Going = Arc<Mutex<BTreeSet<String>>>;

/// Tells of each compilation.
pub(crate) fn listener() -> LoadListener {
    let going = Going::default();
    let to_a_person = output::stderr_is_terminal();
    Arc::new(move |event| match event {
        LoadEvent::Compiling { plugin, bytes } => {
            let size = size(bytes);
            if to_a_person {
                output::note(&format!("compiling {plugin} ({size}), once"));
                remind(&going, plugin.to_string());
            } else {
                tracing::info!(%plugin, size, "compiling, once");
            }
        }
        LoadEvent::Compiled { plugin, elapsed } => {
            going.lock().remove(plugin.as_str());
            let seconds = elapsed.as_secs_f32();
            if !to_a_person {
                tracing::info!(%plugin, seconds, "compiled");
            } else if elapsed >= QUICK {
                output::note(&format!("compiled {plugin} in {seconds:.1} s; from now on it starts at once"));
            }
        }
    })
}

/// Tells from time to time that it goes on, for as long as it does. The thread ends with it, or with the program.
fn remind(going: &Going, plugin: String) {
    going.lock().insert(plugin.clone());
    let (going, start) = (Arc::clone(going), Instant::now());
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(AGAIN);
            if !going.lock().contains(&plugin) {
                return;
            }
            output::note(&format!("still compiling {plugin}, {} s", start.elapsed().as_secs()));
        }
    });
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MB", bytes >> 20) } else { format!("{} KB", bytes.div_ceil(1024)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_short() {
        assert_eq!(
            (size(1), size(717 << 10), size(18 << 20)),
            ("1 KB".into(), "717 KB".into(), "18 MB".into())
        );
    }
}

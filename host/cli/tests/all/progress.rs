//! Progress events of a call on the terminal.

use crate::fixture::HostFolder;
use crate::pty;

/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\u{1b}[K";

#[test]
fn a_terminal_shows_the_progress_of_a_call_on_one_line_that_vanishes() {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    folder.good(&["list"]);
    let call = |args: &str| {
        let mut command = folder.command(&["call", "e__progress", args]);
        command.env("NO_COLOR", "1");
        pty::run(command, 60, &[])
    };
    let (code, shown) = call(r#"{"n": 4}"#);
    assert!(
        code == 0 && shown.contains(&format!("{CLEAR}     Running 25 % e__progress: step 1")),
        "{shown:?}"
    );
    let (_, last) = shown.rsplit_once(CLEAR).unwrap();
    assert_eq!(last, "4 events\n", "{shown:?}");
    let (_, internal) = call(r#"{"n": 4, "audience": "internal"}"#);
    assert_eq!(internal, "4 events\n");
    // A pipe gets the result alone.
    let piped = folder.run(&["call", "e__progress", r#"{"n": 4}"#]).says(0, &[]);
    assert_eq!((piped.out(), piped.err()), ("4 events\n".to_owned(), String::new()));
}

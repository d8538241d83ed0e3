//! Budgets of a client, whichever server it reaches.

use serde_json::json;

use crate::cluster::SharedFixture;

#[test]
fn a_budget_holds_for_all_servers_together() {
    let shared = SharedFixture::new("[session]\nmax_calls = 30\n");
    let servers = ["a", "b", "c"].map(|name| shared.server(name));
    let counts = std::thread::scope(|scope| {
        let clients = servers.each_ref().map(|server| {
            let client = server.client;
            scope.spawn(move || (0..20).filter(|_| client.echoes()).count())
        });
        clients.map(|client| client.join().unwrap())
    });
    assert_eq!(counts.iter().sum::<usize>(), 30, "{counts:?}");
    let (text, is_error) = servers[0].call("e__echo", &json!({"a": 1}));
    assert!(is_error && text.contains("hit 30-tool-call budget for this session"), "{text}");
}

#[test]
fn a_server_that_ends_gives_back_what_it_did_not_spend() {
    let shared = SharedFixture::new("[session]\nmax_calls = 10\n");
    let mut first = shared.server("a");
    assert!(first.echoes());
    first.process.signal("TERM");
    assert_eq!(first.process.exit_code(), 0);
    let second = shared.server("b");
    assert_eq!((0..12).filter(|_| second.echoes()).count(), 9);
}

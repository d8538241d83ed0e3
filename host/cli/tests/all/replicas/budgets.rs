//! Budgets of a client, whichever server it reaches.

use std::time::Duration;

use serde_json::json;

use crate::replicas::cluster::SharedFixture;

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
    let status = shared.run(&["shared", "status", "--json"]).json();
    let lent =
        status["budgets"].as_object().unwrap().values().map(|budget| budget["calls"].as_u64().unwrap());
    assert_eq!(lent.sum::<u64>(), 30, "{status}");
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

#[test]
fn a_budget_holds_while_servers_die() {
    let shared = SharedFixture::new("[session]\nmax_calls = 300\n");
    let mut servers = ["a", "b", "c"].map(|name| shared.server(name));
    let clients = servers.each_ref().map(|server| server.client);
    let counts = std::thread::scope(|scope| {
        let threads = clients.map(|client| {
            scope.spawn(move || {
                let (mut good, mut refused) = (0, 0);
                while refused < 3 {
                    match client.try_call("e__echo", &json!({"a": 1})) {
                        Ok((_, false)) => good += 1,
                        // Spent, or the server is gone.
                        _ => refused += 1,
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                good
            })
        });
        std::thread::sleep(Duration::from_millis(150));
        servers[0].process.child.kill().unwrap();
        threads.map(|thread| thread.join().unwrap())
    });
    let sum = counts.iter().sum::<usize>();
    // A chunk is at most a twelfth of what was left.
    assert!((300 - 25 - 3..=300).contains(&sum), "{counts:?}");
    let late = shared.server("d");
    let rest = (0..5).filter(|_| late.echoes()).count();
    assert!(sum + rest <= 300, "{counts:?} {rest}");
}
